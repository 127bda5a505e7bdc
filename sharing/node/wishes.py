"""Where the wanted state comes from: GPUNode.spec, a file, or what was wanted last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from sharing.api.node import GpuNodeSpec
from sharing.errors import InputError
from sharing.migparted import MigConfigs
from sharing.node.api import NodeApi
from sharing.node.layoutfile import (
    LayoutFile,
    by_mig_config,
    read_layout,
    read_mig_config_file,
)
from sharing.node.observed import GpuState
from sharing.node.rivals import MIG_CONFIG
from sharing.node.settings import AgentSettings
from sharing.node.wanted import Wanted

_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is wanted now, and where it stands."""

    wanted: Wanted
    generation: int | None = None
    """Of the GPUNode that says so."""
    complaint: str = ""
    """Why the newest wish is not understood; the one before it holds."""
    managed: bool = True
    """Whether the node is ours to serve."""
    by_label: bool = False
    """Whether the Node's label ``nvidia.com/mig.config`` says so, which wants to hear its state."""


class Wishes:
    """The wanted state of one node.

    Args:
        settings: The layout file, which wins over the API server, and whether the Node's label
            ``nvidia.com/mig.config`` is honoured.
        api: The API server.
        last: The spec that was wanted last, for the time that the server is away.

    Raises:
        InputError: A file cannot be understood.
    """

    def __init__(
        self, settings: AgentSettings, api: NodeApi | None, last: GpuNodeSpec | None
    ) -> None:
        self._file = settings.layout_file
        self._mig_config = settings.mig_config
        configs = settings.mig_configs
        self._configs = None if configs is None else read_mig_config_file(configs)
        self._api = api
        self.last = last
        self._stamp: tuple[int, int] | None = None
        self._read: LayoutFile | None = None
        if self._file is not None:
            self._read = read_layout(self._file, self._mig_config)
        self._complaint = ""
        self._notes: tuple[str, ...] = ()

    def now(self, gpus: Sequence[GpuState]) -> Wish:
        """What is wanted of these GPUs."""
        if self._file is not None:
            self._reread(self._file)
            try:
                wanted = Wanted() if self._read is None else self._read.wanted(gpus)
                self._note(() if self._read is None else self._read.notes(gpus))
            except InputError as error:
                return Wish(wanted=Wanted(), complaint=str(error.about(str(self._file))))
            return Wish(wanted=wanted, complaint=self._complaint)
        if self._api is None or not self._api.synced:
            return Wish(wanted=Wanted() if self.last is None else Wanted.from_spec(self.last))
        seen = self._api.spec
        if seen is not None and seen.spec is not None and seen.spec.gpus:
            self.last = seen.spec
        config = self._api.foreign_labels.get(MIG_CONFIG)
        if self._configs is not None and config:
            return self._by_label(self._configs, config, gpus, self._api)
        return Wish(
            wanted=Wanted() if self.last is None else Wanted.from_spec(self.last),
            generation=None if seen is None else seen.generation,
            complaint="" if seen is None else seen.complaint,
            managed=self._api.managed,
        )

    def _by_label(
        self, configs: MigConfigs, config: str, gpus: Sequence[GpuState], api: NodeApi
    ) -> Wish:
        """What the label asks for; kept as what was wanted last, so that it outlives the server."""
        seen, complaint = api.spec, ""
        before = Wanted() if self.last is None else Wanted.from_spec(self.last)
        try:
            wanted = Wanted({**before.by_uuid, **by_mig_config(configs, config, gpus).by_uuid})
        except InputError as error:
            wanted, complaint = before, str(error.about(f"label {MIG_CONFIG}={config}"))
        else:
            self.last = wanted.to_spec()
        return Wish(
            wanted=wanted,
            generation=None if seen is None else seen.generation,
            complaint=complaint,
            managed=api.managed,
            by_label=True,
        )

    def _note(self, notes: tuple[str, ...]) -> None:
        for note in (one for one in notes if one not in self._notes):
            _log.warning("part of the layout file was not carried over", reason=note)
        self._notes = notes

    def _reread(self, file: Path) -> None:
        try:
            status = file.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._read = read_layout(file, self._mig_config)
        except (OSError, InputError) as error:
            if str(error) != self._complaint:
                _log.warning("layout file was passed over", error=str(error))
            self._complaint = str(error)
        else:
            self._complaint = ""
