"""structlog without rich, which it loads whenever it is there, for tracebacks in colour.

Programs that serve have no use for them; rich costs each 4 MB and 40 ms of its start. Commands that
print tables load it themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Have a package count as not installed; nothing, if it is loaded already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment] # Python's own mark of what is not there
    try:
        yield
    finally:
        del sys.modules[name]


with _hidden("rich"):
    import structlog

__all__ = ["structlog"]
