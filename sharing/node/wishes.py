"""Where the wanted state comes from: GPUNode.spec, a file, or what was wanted last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from sharing.api.node import GpuNodeSpec
from sharing.errors import InputError
from sharing.node.api import NodeApi
from sharing.node.layoutfile import read_layout
from sharing.node.observed import GpuState
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


class Wishes:
    """The wanted state of one node.

    Args:
        file: Layout entries; wins over the API server.
        api: The API server.
        last: The spec that was wanted last, for the time that the server is away.
    """

    def __init__(self, file: Path | None, api: NodeApi | None, last: GpuNodeSpec | None) -> None:
        self._file = file
        self._api = api
        self.last = last
        self._stamp: tuple[int, int] | None = None
        self._entries = None if file is None else read_layout(file)
        self._complaint = ""

    def now(self, gpus: Sequence[GpuState]) -> Wish:
        """What is wanted of these GPUs."""
        if self._file is not None:
            self._reread(self._file)
            wanted = Wanted.from_entries(self._entries or (), gpus)
            return Wish(wanted=wanted, complaint=self._complaint)
        if self._api is None or not self._api.synced:
            return Wish(wanted=Wanted() if self.last is None else Wanted.from_spec(self.last))
        seen = self._api.spec
        if seen is not None and seen.spec is not None and seen.spec.gpus:
            self.last = seen.spec
        return Wish(
            wanted=Wanted() if self.last is None else Wanted.from_spec(self.last),
            generation=None if seen is None else seen.generation,
            complaint="" if seen is None else seen.complaint,
            managed=self._api.managed,
        )

    def _reread(self, file: Path) -> None:
        try:
            status = file.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._entries = read_layout(file)
        except (OSError, InputError) as error:
            if str(error) != self._complaint:
                _log.warning("layout file was passed over", error=str(error))
            self._complaint = str(error)
        else:
            self._complaint = ""
