"""A file in the container that tells user code its share, for whoever prefers files to variables.

It lies at ``/etc/gpu-sharing/shares/<share>.json``, one for each share that the container holds,
and is on disk before the share can be handed out, since a mount whose source is missing keeps a
container from starting.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import orjson

from sharing.plugin.binding import ShareBinding, file_name
from sharing.plugin.errors import PluginError

VERSION: Final = 1


def content_of(binding: ShareBinding) -> bytes:
    """What the file says; equal shares give equal bytes."""
    mps = binding.mps
    told = {
        "version": VERSION,
        "share": binding.device_id,
        "resource": binding.resource,
        "mode": binding.mode.value,
        "isolation": binding.mode.isolation.value,
        "memoryMiB": binding.memory_mib,
        "threadPercentage": None if mps is None else mps.thread_percentage,
        "device": binding.visible,
        "gpu": binding.gpu_uuid,
    }
    return orjson.dumps(told, option=orjson.OPT_INDENT_2) + b"\n"


class ShareFiles:
    """The files of one node.

    Args:
        folder: Where they lie, on the host and in the agent; must outlive reboots, as running
            pods do.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[str, bytes] = {}

    def path_of(self, device_id: str) -> str:
        """Where the file of a share lies."""
        return str(self._folder / file_name(device_id))

    def write(self, bindings: Iterable[ShareBinding]) -> None:
        """Have the files of these shares on disk; those of others stay.

        Raises:
            PluginError: The disk refuses.
        """
        for binding in bindings:
            if binding.info_file is None:
                continue
            path, content = Path(binding.info_file), content_of(binding)
            if self._written.get(path.name) == content:
                continue
            try:
                _replace(path, content)
            except OSError as error:
                raise PluginError(
                    f"file {path}",
                    f"cannot be written: {error.strerror or error}",
                    fix="make room on the disk of the state folder, writable for the agent",
                ) from error
            self._written[path.name] = content

    def tidy(self, bindings: Iterable[ShareBinding]) -> None:
        """Remove the files of all other shares."""
        wanted = {file_name(one.device_id) for one in bindings}
        for path in self._folder.glob("*.json"):
            if path.name not in wanted:
                path.unlink(missing_ok=True)
                self._written.pop(path.name, None)


def _replace(path: Path, content: bytes) -> None:
    """Write without an instant at which a starting container finds half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.new")
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.chmod(0o644)
    scratch.replace(path)
