"""A stand-in for ``nvidia-smi compute-policy`` on machines without GPUs.

Keeps each GPU's slice in the file that ``GPU_SHARING_TIMESLICES`` names. The words in the file
``GPU_SHARING_TIMESLICE_FAULTS``, read at each call, are faults: ``refuse`` (no root), ``forget``
(success that sets nothing), ``mumble`` (an answer of another form), ``hang``.

Standard library only, and nothing of this package: it starts once for each question.
Source: ``nvidia-smi compute-policy --help``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

NAMES: Final = ("Default", "Short", "Medium", "Long")
_NO_RIGHT: Final = 4
"""``NVML_ERROR_NO_PERMISSION``, which nvidia-smi exits with."""
_TABLE: Final = """\
+---------------------------------------+
| GPU compute policies:                 |
| GPU     Name              Value       |
|=======================================|
|   0    Time-slice         {value:<12}|
+---------------------------------------+
"""


def main(argv: list[str]) -> int:
    """Be the command; its exit status."""
    parser = argparse.ArgumentParser(prog="nvidia-smi")
    parser.add_argument("command", choices=["compute-policy"])
    parser.add_argument("-i", "--id", required=True)
    parser.add_argument("-l", "--list", action="store_true")
    parser.add_argument("--set-timeslice", type=int, choices=range(len(NAMES)))
    options = parser.parse_args(argv)
    faults = _faults()
    if "hang" in faults:
        signal.pause()
    path = Path(os.environ["GPU_SHARING_TIMESLICES"])
    slices = _read(path)
    if options.set_timeslice is not None:
        if "refuse" in faults:
            sys.stdout.write("Insufficient Permissions\n")
            return _NO_RIGHT
        if "forget" not in faults:
            path.write_text(json.dumps({**slices, options.id: options.set_timeslice}), "utf-8")
        sys.stdout.write("All done.\n")
    else:
        value = NAMES[slices.get(options.id, 0)]
        sys.stdout.write("?\n" if "mumble" in faults else _TABLE.format(value=value))
    return 0


def _read(path: Path) -> dict[str, int]:
    with suppress(FileNotFoundError):
        return {str(gpu): int(value) for gpu, value in json.loads(path.read_text("utf-8")).items()}
    return {}


def _faults() -> frozenset[str]:
    path = os.environ.get("GPU_SHARING_TIMESLICE_FAULTS")
    if path:
        with suppress(OSError):
            return frozenset(Path(path).read_text("utf-8").split())
    return frozenset()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
