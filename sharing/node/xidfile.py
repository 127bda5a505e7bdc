"""An operator's own health policy, read from a file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from sharing.errors import InputError
from sharing.node.xid import FaultTable, shipped_table

_LONGEST_FILE: Final = 1 << 20


def read_table(path: Path) -> FaultTable:
    """Our table with an operator's file over it.

    Raises:
        InputError: The file cannot be read or understood.
    """
    subject = f"health policy {path}"
    try:
        with path.open("rb") as file:
            raw = file.read(_LONGEST_FILE + 1)
    except OSError as error:
        raise InputError(subject, f"cannot be read: {error.strerror}") from error
    if len(raw) > _LONGEST_FILE:
        raise InputError(subject, f"is larger than {_LONGEST_FILE} bytes")
    try:
        content = tomllib.loads(raw.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(
            subject,
            f"is no TOML: {error}",
            fix="write it as the table that is shipped",
            example='[xids]\n94 = { reaction = "act", action = "RESET_GPU" }',
        ) from error
    return shipped_table().with_file(content, subject)
