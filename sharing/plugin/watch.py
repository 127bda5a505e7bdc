"""Notices that the kubelet came, went or came back, by looking at its socket.

A restarted kubelet deletes all plugin sockets and makes its own anew, so the socket's identity
is the kubelet's. Five looks a second cost next to nothing, need no library, survive the folder's
removal, and cannot overflow as inotify queues do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

KUBELET_SOCKET: Final = "kubelet.sock"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SocketIdentity:
    """One kubelet's life, as its socket file tells it.

    An inode number may be used again at once, hence the time too; it is the modification time,
    because relabelling a socket changes the other one.
    """

    device: int
    inode: int
    modified_ns: int


class KubeletWatch:
    """Watches one socket folder.

    Args:
        socket_dir: The kubelet's folder of device-plugin sockets.
        poll_s: Time between two looks.
    """

    def __init__(self, socket_dir: Path, *, poll_s: float) -> None:
        self.socket = socket_dir / KUBELET_SOCKET
        self.identity: SocketIdentity | None = None
        self._poll_s = poll_s
        self._guarded: dict[Path, bool] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look now, and from now on."""
        if self._task is None:
            self._look()
            self._task = asyncio.create_task(self._run(), name="kubelet watch")

    async def stop(self) -> None:
        """Look no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def guard(self, path: Path) -> None:
        """Watch one of our own sockets too."""
        self._guarded[path] = True

    def release(self, path: Path) -> None:
        """Stop to watch a socket of our own."""
        self._guarded.pop(path, None)

    def present(self, path: Path) -> bool:
        """Whether a guarded socket was there at the last look."""
        return self._guarded.get(path, False)

    async def until(self, met: Callable[[], bool]) -> None:
        """Wait until a condition holds, looked at whenever something changed in the folder."""
        while not met():
            await self._changed.wait()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            if self._look():
                self._changed.set()
                self._changed = asyncio.Event()

    def _look(self) -> bool:
        identity = _identity(self.socket)
        guarded = {path: _identity(path) is not None for path in self._guarded}
        changed = identity != self.identity or guarded != self._guarded
        if identity != self.identity:
            _log.info("kubelet socket changed", socket=str(self.socket), present=bool(identity))
        self.identity, self._guarded = identity, guarded
        return changed


def _identity(path: Path) -> SocketIdentity | None:
    try:
        found = path.stat()
    except OSError:  # absent, or the folder is being made anew: nobody to talk to, in either case
        return None
    return SocketIdentity(found.st_dev, found.st_ino, found.st_mtime_ns)
