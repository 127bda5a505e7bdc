"""Copies TCP streams between two network namespaces.

A socket belongs to the namespace that it was made in, so a listener from outside, inherited by a
process inside, is a door: whoever connects outside is joined to an address inside.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final

_CHUNK: Final = 65536


class Forwarder:
    """Joins each connection that a listener takes to an address; threads that end with us.

    Args:
        listener: Taken over.
        target: Host and port, as this process reaches them.
    """

    def __init__(self, listener: socket.socket, target: tuple[str, int]) -> None:
        self._listener = listener
        self._target = target
        threading.Thread(target=self._accept, name="forward", daemon=True).start()

    def close(self) -> None:
        """Take no further connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # close alone does not wake accept
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()  # the caller sees what it would see without us: a refusal
                continue
            _Pipe(near, far)


class _Pipe:
    """Two directions of one connection; both sockets close when both are done."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self._both = (near, far)
        self._left = 2
        self._lock = threading.Lock()
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                sink.sendall(data)
        for each, how in ((sink, socket.SHUT_WR), (source, socket.SHUT_RD)):
            with contextlib.suppress(OSError):
                each.shutdown(how)
        with self._lock:
            self._left -= 1
            if self._left == 0:
                for each in self._both:
                    each.close()
