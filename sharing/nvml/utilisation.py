"""How much of a GPU's time each process takes, where the hardware can tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sharing.nvml.binding import UNANSWERABLE, Binding
from sharing.nvml.codes import Code
from sharing.nvml.errors import NvmlError

_NO_SAMPLES: Final = frozenset({Code.SUCCESS, Code.NOT_FOUND})
"""pynvml raises an error of code 0 where the driver answers success with nothing."""
_MOST_PERCENT: Final = 100


def process_utilisation(
    binding: Binding, handle: Any, since_us: int, subject: str
) -> Mapping[int, int] | None:
    """Per cent of the GPU's SM time by pid; None where nobody can tell, as in MIG mode.

    Args:
        binding: The driver.
        handle: The GPU's.
        since_us: Older samples do not count; microseconds since the epoch.
        subject: The GPU, for errors.

    Raises:
        NvmlError: The GPU does not answer.
    """
    try:
        samples = binding.call("DeviceGetProcessUtilization", handle, since_us, subject=subject)
    except NvmlError as error:
        if error.code in _NO_SAMPLES:
            return {}
        if error.code in UNANSWERABLE:
            return None
        raise
    latest: dict[int, tuple[int, int]] = {}
    for one in samples:
        latest[one.pid] = max(latest.get(one.pid, (0, 0)), (one.timeStamp, one.smUtil))
    return {pid: min(percent, _MOST_PERCENT) for pid, (_, percent) in sorted(latest.items())}
