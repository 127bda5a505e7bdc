"""How long the agent may sleep between two turns (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sharing.node.plan import BlockerKind
from sharing.node.settings import Tempo
from sharing.node.status import GpuReport

AT_ONCE: Final = 0.0


def nap_s(
    reports: Sequence[GpuReport],
    tempo: Tempo,
    *,
    rests: Iterable[float],
    disputed: bool,
    probing: bool,
    by_file: bool,
) -> float:
    """Seconds until the next turn, if nothing wakes the agent before.

    Args:
        reports: The node as it is.
        tempo: How often to look at what.
        rests: For how long GPUs are left alone after failures, seconds; 0 for none.
        disputed: Whether somebody else manages the GPUs, whose end nobody reports.
        probing: Whether some GPU is ill and waits for its probes.
        by_file: Whether a layout file has to be looked at.
    """
    naps = [tempo.observe_s, *(rest for rest in rests if rest > 0)]
    if any(one.plan.blocked_by for one in reports):
        naps.append(tempo.blocked_s)
    if disputed or any(one.holds for one in reports):
        naps.append(tempo.holders_s)
    if probing:
        naps.append(tempo.probe_s)
    if by_file:
        naps.append(tempo.file_s)
    return min(naps)


def waits_for_process(reports: Iterable[GpuReport]) -> bool:
    """Whether some plan waits for a process, whose end nobody reports."""
    return any(
        blocker.kind is BlockerKind.PROCESS for one in reports for blocker in one.plan.blocked_by
    )
