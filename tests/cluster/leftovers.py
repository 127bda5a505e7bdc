"""Folders of clusters below /tmp: made with their owner's mark, removed when the owner is gone.

A test run that is killed cannot clean up; the next one does it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from tests.cluster.identity import identity_of, is_alive

TOP: Final = Path("/tmp")
"""Unix sockets take 108 bytes, so not where TMPDIR may point."""
PREFIX: Final = "gs-cluster-"
_OWNERS: Final = "owners"


def make_folder(top: Path = TOP) -> Path:
    """A new folder that this process owns."""
    folder = Path(mkdtemp(prefix=PREFIX, dir=top))
    own(folder)
    return folder


def own(folder: Path) -> None:
    """Own a folder too: it stays while one of its owners lives."""
    with (folder / _OWNERS).open("a") as owners:
        owners.write(f"{identity_of(os.getpid())}\n")


def sweep(top: Path = TOP) -> list[Path]:
    """Remove the folders that nobody alive owns."""
    left = [folder for folder in sorted(top.glob(f"{PREFIX}*")) if _is_left(folder)]
    for folder in left:
        shutil.rmtree(folder, ignore_errors=True)
    return left


def _is_left(folder: Path) -> bool:
    try:
        owners = (folder / _OWNERS).read_text().split()
    except OSError:
        return False  # just being made, or not ours
    return not any(is_alive(owner) for owner in owners)
