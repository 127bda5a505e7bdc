"""The control protocol's words: commands, and what their answers mean; pure.

Commands are lines, answers are lines. Settings that begin with ``set_default_`` hold for servers
started later; the forms with a server's PID change a running one, for new clients only.

Source: NVIDIA MPS documentation, "nvidia-cuda-mps-control"; answers as printed in NVIDIA's GPU
Operator guide ("25.0", "3G").
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from sharing.errors import shown
from sharing.mps.errors import MpsError, MpsMisreportError
from sharing.mps.limits import MpsLimits

ORDINAL: Final = 0
"""A daemon sees one device. By ordinal, since limits by UUID were found not to apply
(NVIDIA/k8s-device-plugin 0.15.0-rc.2)."""
GET_THREADS: Final = "get_default_active_thread_percentage"
GET_MEMORY: Final = f"get_default_device_pinned_mem_limit {ORDINAL}"
GET_SERVERS: Final = "get_server_list"
QUIT: Final = "quit"

_MEMORY: Final = re.compile(r"([0-9]{1,15})\s?([KMG]?)(?:i?B)?", re.ASCII)
_PERCENTAGE: Final = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,6}))?%?", re.ASCII)
_PID: Final = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)
_BYTES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_MOST_PIDS: Final = 4096


def set_defaults(limits: MpsLimits) -> tuple[str, ...]:
    """Commands that limit clients of servers started from now on."""
    return (
        f"set_default_device_pinned_mem_limit {ORDINAL} {limits.memory_mib}M",
        f"set_default_active_thread_percentage {limits.thread_percentage}",
    )


def set_running(server_pid: int, limits: MpsLimits) -> tuple[str, ...]:
    """Commands that limit new clients of a running server."""
    return (
        f"set_device_pinned_mem_limit {server_pid} {ORDINAL} {limits.memory_mib}M",
        f"set_active_thread_percentage {server_pid} {limits.thread_percentage}",
    )


def get_clients(server_pid: int) -> str:
    """The command that lists a server's clients."""
    return f"get_client_list {server_pid}"


def check_threads(answer: str, limits: MpsLimits) -> None:
    """Raise unless the daemon reports the percentage that it was given.

    Raises:
        MpsMisreportError: It reports another one, or none.
    """
    match = _PERCENTAGE.fullmatch(answer.strip())
    if match is None or Fraction(f"{match[1]}.{match[2] or 0}") != limits.thread_percentage:
        raise _misreported("thread percentage", answer, f"{limits.thread_percentage}")


def check_memory(answer: str, limits: MpsLimits) -> None:
    """Raise unless the daemon reports the memory limit that it was given.

    It reports in a unit of its own choice and drops what is below it: 3840M was seen as ``3G``.
    So the answer has to agree down to its own unit.

    Raises:
        MpsMisreportError: It reports another limit, or none.
    """
    match = _MEMORY.fullmatch(answer.strip())
    given = limits.memory_mib << 20
    if match is None or not int(match[1]) or given // _BYTES[match[2]] != int(match[1]):
        raise _misreported("memory limit", answer, f"{limits.memory_mib}M")


def parse_pids(answer: str) -> tuple[int, ...]:
    """The process ids of a list answer, sorted.

    Raises:
        MpsError: A line is no process id.
    """
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    if len(lines) > _MOST_PIDS or not all(_PID.fullmatch(line) for line in lines):
        raise MpsError(
            "MPS daemon", f"answers {shown(answer)} to a list", expected="one process id a line"
        )
    return tuple(sorted({int(line) for line in lines}))


def _misreported(what: str, answer: str, given: str) -> MpsMisreportError:
    return MpsMisreportError(
        "MPS daemon",
        f"reports {what} {shown(answer.strip())} after it was set",
        expected=given,
        fix="nothing to do, it is restarted; no share is offered before it agrees",
    )
