"""Keeps CDI spec files on disk: whole or not at all, no more than are needed.

The folder is usually lost at reboot while the kubelet's answers are not, and a restarting
container is not asked for again. So which GPUs were handed out together is also noted in a folder
that lasts, and their combined device is written anew once all of its GPUs are known.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson
import structlog

from sharing.plugin.binding import EditSettings, ShareBinding
from sharing.plugin.cdi import (
    COMBINED_PREFIX,
    FILE_PREFIX,
    CdiDevice,
    combinations_in,
    file_name,
    spec,
    spec_files,
)
from sharing.plugin.errors import PluginError

_MOST_COMBINATIONS: Final = 1024
"""Eight GPUs have 247 combinations; beyond this the oldest are forgotten."""
_MEMORY_FILE: Final = "combined-devices.json"

_log = structlog.get_logger()


class CdiStore:
    """The spec files of one node.

    All methods block for a few small files, and may be called from several threads.

    Args:
        directory: The CDI folder that container runtimes watch.
        settings: What is the same for all devices.
        state_dir: A folder that outlives a reboot; None to remember combinations only in the
            CDI folder.
    """

    def __init__(
        self, directory: Path, settings: EditSettings, *, state_dir: Path | None = None
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._memory = None if state_dir is None else state_dir / _MEMORY_FILE
        self._combinations: list[frozenset[str]] | None = None
        self._wanted: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def sync(self, bindings: Sequence[ShareBinding]) -> None:
        """Make the files these bindings, and the combined devices among them.

        Raises:
            PluginError: A file cannot be written or removed.
        """
        with self._lock:
            self._sync(bindings)

    def _sync(self, bindings: Sequence[ShareBinding]) -> None:
        self._wanted = spec_files(bindings, self._known_combinations(), self._settings)
        for name, content in self._wanted.items():
            self._write(self._directory / name, content)
        for path in self._ours():
            if path.name not in self._wanted:
                self._remove(path)

    def ensure(self, device: CdiDevice, bindings: Sequence[ShareBinding]) -> None:
        """Have a device on disk that is about to be handed out, written anew if it got lost.

        Raises:
            PluginError: A file cannot be written.
        """
        name = file_name(device.name if len(bindings) > 1 else bindings[0].gpu_uuid)
        with self._lock:
            if len(bindings) > 1:
                self._remember(frozenset(binding.device_id for binding in bindings))
            content = self._wanted.setdefault(name, spec([device], self._settings))
            self._write(self._directory / name, content)

    def _ours(self) -> tuple[Path, ...]:
        return tuple(sorted(self._directory.glob(f"{FILE_PREFIX}*.json")))

    def _known_combinations(self) -> list[frozenset[str]]:
        if self._combinations is None:
            found = dict.fromkeys(self._remembered())
            for path in self._ours():
                if path.name.startswith(FILE_PREFIX + COMBINED_PREFIX):
                    found |= dict.fromkeys(combinations_in(_read(path)))
            self._combinations = list(found)
        return self._combinations

    def _remembered(self) -> tuple[frozenset[str], ...]:
        if self._memory is None or not self._memory.exists():
            return ()
        try:
            lists = orjson.loads(_read(self._memory))
            return tuple(frozenset(str(one) for one in ids) for ids in lists)
        except (ValueError, TypeError) as error:
            # Lost memory costs containers a restart after the next reboot, not the agent's start.
            _log.warning(
                "combined devices were not read", file=str(self._memory), reason=str(error)
            )
            return ()

    def _remember(self, ids: frozenset[str]) -> None:
        known = self._known_combinations()
        if ids in known:
            return
        self._combinations = [*known, ids][-_MOST_COMBINATIONS:]
        if self._memory is not None:
            content = orjson.dumps([sorted(one) for one in self._combinations])
            self._write(self._memory, content)

    def _write(self, path: Path, content: bytes) -> None:
        """Replace a file atomically, unless it holds the content already."""
        if _read(path) == content:
            return
        # Runtimes read *.json only, so a half-written file is never looked at.
        scratch = path.with_name(f".{path.name}.{os.getpid()}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with scratch.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            scratch.chmod(0o644)
            scratch.replace(path)
        except OSError as error:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise _refused(path, "cannot be written", error) from error

    @staticmethod
    def _remove(path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _refused(path, "cannot be removed", error) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _refused(path: Path, wrong: str, error: OSError) -> PluginError:
    return PluginError(
        f"file {path}",
        f"{wrong}: {error.strerror or error}",
        fix="mount the folder into the agent's container, writable",
    )
