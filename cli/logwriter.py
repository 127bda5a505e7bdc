"""Writes log lines from a thread, so that a reader who stops reading stops nobody.

A pipe that is not read is full after 64 KiB; whoever writes to it then waits, and with it all that
the program serves. Here lines wait in a bounded queue instead; what does not fit is dropped and
counted, and the count is a line of its own once there is room.

Lines that come close together are written together: to wake a thread for each of them costs more
than to make them.
"""

from __future__ import annotations

import atexit
import collections
import os
import select
import threading
from contextlib import suppress
from typing import Final

_MOST_LINES: Final = 20_000
_GATHER_S: Final = 0.02
"""How long more lines are waited for."""
_END_TIMEOUT_S: Final = 2.0


class LineWriter:
    """A stream for structlog's ``BytesLogger``; ends with the process, its lines written.

    Args:
        descriptor: The file descriptor to write to.
        most_lines: How many lines may wait.
    """

    def __init__(self, descriptor: int, *, most_lines: int = _MOST_LINES) -> None:
        self._descriptor = descriptor
        self._most_lines = most_lines
        self._lines: collections.deque[bytes] = collections.deque()
        self._waiting = threading.Event()
        self._ending = threading.Event()
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def write(self, line: bytes) -> int:
        """Hand over a line; never waits."""
        if len(self._lines) < self._most_lines:
            self._lines.append(line)
        else:
            self._dropped += 1
        if not self._waiting.is_set():
            self._waiting.set()
        return len(line)

    def flush(self) -> None:
        """Nothing to do: lines are written soon after they come."""

    def close(self) -> None:
        """Wait a moment for the lines that were handed over."""
        atexit.unregister(self.close)
        self._ending.set()
        self._waiting.set()
        self._thread.join(_END_TIMEOUT_S)

    def _run(self) -> None:
        while not self._ending.is_set():
            self._waiting.wait()
            self._ending.wait(_GATHER_S)
            # Cleared before the lines are taken: one that comes now wakes the thread again.
            self._waiting.clear()
            self._write_waiting()
        self._write_waiting()

    def _write_waiting(self) -> None:
        while self._lines:
            data = self._lines.popleft()
            # What is longer may be torn by what another process writes to the same pipe.
            while self._lines and len(data) + len(self._lines[0]) <= select.PIPE_BUF:
                data += self._lines.popleft()
            dropped, self._dropped = self._dropped, 0
            if dropped:
                data += (
                    b'{"level":"warning","event":"log lines were dropped","count":%d}\n' % dropped
                )
            # Nobody is left to be told that telling failed.
            with suppress(OSError):
                self._write(data)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]
