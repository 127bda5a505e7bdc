"""Builds the wall clock that jumps, and sets it; see ``wallclock.c``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from sharing.errors import UnavailableError

SOURCE: Final = Path(__file__).with_suffix(".c")
_BYTES: Final = 8


def compiler() -> str:
    """The C compiler of this machine; empty where there is none."""
    return shutil.which("cc") or shutil.which("gcc") or ""


class WallClock:
    """The wall clock of some processes.

    Args:
        folder: Takes the library and the offset.
    """

    def __init__(self, folder: Path) -> None:
        self._library = folder / "wallclock.so"
        self._offset = folder / "wallclock.offset"
        self.set(0)
        self._build()

    def _build(self) -> None:
        program = compiler()
        if not program:
            raise UnavailableError("C compiler", "there is none", fix="install gcc")
        subprocess.run(
            [program, "-shared", "-fPIC", "-O2", "-o", str(self._library), str(SOURCE)], check=True
        )

    @property
    def environment(self) -> dict[str, str]:
        """What puts a process under this clock."""
        return {"LD_PRELOAD": str(self._library), "WALLCLOCK_OFFSET": str(self._offset)}

    def set(self, offset_s: int) -> None:
        """Put the clock so many seconds ahead of the true time, at once."""
        value = offset_s.to_bytes(_BYTES, "little", signed=True)
        # In place: the processes have the file's page in their memory.
        with self._offset.open("r+b" if self._offset.exists() else "wb") as file:
            file.write(value)
