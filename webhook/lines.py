"""Lines: texts that others chose, on their way to an author, a log or a terminal.

Names and keys come here before the API server has looked at them: they may be of any length, and
steer a terminal.
"""

from __future__ import annotations


def plain(text: str) -> str:
    """A text with escapes in place of control characters."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def bounded(text: str, most: int) -> str:
    """A plain text of at most so many characters."""
    line = plain(text[: most + 1])
    return line if len(line) <= most else line[: most - 1] + "…"
