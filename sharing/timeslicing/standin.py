"""A stand-in for ``nvidia-smi compute-policy`` on machines without GPUs.

Keeps each GPU's slice in the file that ``GPU_SHARING_TIMESLICES`` names. The words in the file
``GPU_SHARING_TIMESLICE_FAULTS``, read at each call, are faults: ``refuse`` (no root), ``forget``
(success that sets nothing), ``mumble`` (an answer of another form), ``hang``.

Standard library only, and nothing of this package: it starts once for each question.
Source: ``nvidia-smi compute-policy --help``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from typing import Final

NAMES: Final = ("Default", "Short", "Medium", "Long")
_NO_RIGHT: Final = 4
"""``NVML_ERROR_NO_PERMISSION``, which nvidia-smi exits with."""
_USAGE: Final = 2
_FOR_EVER_S: Final = 3600
_TABLE: Final = """\
+---------------------------------------+
| GPU compute policies:                 |
| GPU     Name              Value       |
|=======================================|
|   0    Time-slice         {value:<12}|
+---------------------------------------+
"""


def main(argv: list[str]) -> int:
    """Be the command; its exit status.

    Written without argparse and pathlib, which cost most of a start.
    """
    match argv:
        case ["compute-policy", "-i", uuid, "--list"]:
            value = None
        case ["compute-policy", "-i", uuid, "--set-timeslice", "0" | "1" | "2" | "3" as text]:
            value = int(text)
        case _:
            sys.stdout.write("Invalid combination of input arguments.\n")
            return _USAGE
    faults = _faults()
    if "hang" in faults:
        time.sleep(_FOR_EVER_S)
    return _show(uuid, faults) if value is None else _set(uuid, value, faults)


def _show(uuid: str, faults: frozenset[str]) -> int:
    value = NAMES[_read().get(uuid, 0)]
    sys.stdout.write("?\n" if "mumble" in faults else _TABLE.format(value=value))
    return 0


def _set(uuid: str, value: int, faults: frozenset[str]) -> int:
    if "refuse" in faults:
        sys.stdout.write("Insufficient Permissions\n")
        return _NO_RIGHT
    if "forget" not in faults:
        slices = {**_read(), uuid: value}
        path = os.environ["GPU_SHARING_TIMESLICES"]
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - see main
            json.dump(slices, file)
    sys.stdout.write("All done.\n")
    return 0


def _read() -> dict[str, int]:
    return json.loads(_text("GPU_SHARING_TIMESLICES") or "{}")  # type: ignore[no-any-return]


def _faults() -> frozenset[str]:
    return frozenset(_text("GPU_SHARING_TIMESLICE_FAULTS").split())


def _text(variable: str) -> str:
    """The content of the file that a variable names; empty if there is none."""
    path = os.environ.get(variable, "")
    with suppress(OSError), open(path, encoding="utf-8") as file:  # noqa: PTH123 - see main
        return file.read()
    return ""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
