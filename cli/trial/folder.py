"""The folder that a trial leaves behind when it is asked to."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sharing.errors import InputError

_LONGEST: Final = 40
"""Bytes; the nodes' unix sockets lie below and take 108 in all (Linux, ``sun_path``)."""


def kept_folder(path: Path) -> Path:
    """A new, empty folder at a path.

    Raises:
        InputError: It cannot be made, is not empty, or its path is too long for sockets.
    """
    path = path.absolute()
    if len(bytes(path)) > _LONGEST:
        raise InputError(
            f"folder {path}",
            "its path is too long for unix sockets",
            expected=f"at most {_LONGEST} bytes",
            example="~/demo",
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise InputError(f"folder {path}", "is not empty", fix="name a new one")
    except OSError as error:
        raise InputError(f"folder {path}", f"cannot be used: {error.strerror}") from error
    return path
