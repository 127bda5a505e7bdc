"""Text from manifests, clusters and files, as it may be shown in a terminal (pure)."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with escapes in place of whatever would steer a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
