"""Writes log lines from a thread, so that a reader who stops reading stops nobody.

A pipe that is not read is full after 64 KiB; whoever writes to it then waits, and with it all that
the program serves. Here lines wait in a bounded queue instead; what does not fit is dropped and
counted, and the count is a line of its own once there is room.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
from contextlib import suppress
from typing import Final

_MOST_LINES: Final = 20_000
_END_TIMEOUT_S: Final = 2.0


class LineWriter:
    """A stream for structlog's ``BytesLogger``; ends with the process, its lines written.

    Args:
        descriptor: The file descriptor to write to.
        most_lines: How many lines may wait.
    """

    def __init__(self, descriptor: int, *, most_lines: int = _MOST_LINES) -> None:
        self._descriptor = descriptor
        self._lines: queue.Queue[bytes | None] = queue.Queue(most_lines)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def write(self, line: bytes) -> int:
        """Hand over a line; never waits."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1
        return len(line)

    def flush(self) -> None:
        """Nothing to do: lines are written as they come."""

    def close(self) -> None:
        """Wait a moment for the lines that were handed over."""
        atexit.unregister(self.close)
        with suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(_END_TIMEOUT_S)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            dropped, self._dropped = self._dropped, 0
            if dropped:
                line += (
                    b'{"level":"warning","event":"log lines were dropped","count":%d}\n' % dropped
                )
            # Nobody is left to be told that telling failed.
            with suppress(OSError):
                self._write(line)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]
