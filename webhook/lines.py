"""Lines: texts that others chose, on their way to an author or a log.

Names and keys come here before the API server has looked at them: they may be of any length, and
steer a terminal.
"""

from __future__ import annotations

from sharing.printable import printable


def bounded(text: str, most: int) -> str:
    """A printable text of at most so many characters."""
    line = printable(text[: most + 1])
    return line if len(line) <= most else line[: most - 1] + "…"
