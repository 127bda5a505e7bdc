"""Which process exactly: process ids come again, a process id with its start time does not."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PARTS: Final = 2
_START_TIME: Final = 19
"""Field 22 of /proc/PID/stat, clock ticks since boot; the first two hold the name. See proc(5)."""


def identity_of(pid: int) -> str:
    """A process as ``PID-STARTTIME``.

    Raises:
        FileNotFoundError: There is no such process, or nothing of it but its exit code.
    """
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if after_name[0] == "Z":
        raise FileNotFoundError(f"process {pid} is a zombie")
    return f"{pid}-{after_name[_START_TIME]}"


def is_alive(identity: str) -> bool:
    """Whether the process of an identity still runs; what is no identity counts as alive."""
    parts = identity.split("-")
    if len(parts) != _PARTS or not all(part.isdigit() for part in parts):
        return True
    try:
        return identity_of(int(parts[0])) == identity
    except (FileNotFoundError, ProcessLookupError):
        return False
