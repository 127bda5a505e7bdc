"""Which command the agent sets time slices with, and where it keeps what it found."""

from __future__ import annotations

from typing import Final

from sharing.node.settings import AgentSettings
from sharing.timeslicing.policy import ComputePolicy, stand_in
from sharing.timeslicing.slices import TimeSlices

_RECORD: Final = "timeslices.json"


def time_slices(settings: AgentSettings) -> TimeSlices:
    """The time slices of a node's GPUs, real or simulated."""
    simulate = settings.simulate
    if simulate is None:
        policy = ComputePolicy()
    else:
        policy = stand_in(simulate.with_name(f"{simulate.name}.timeslices"))
    return TimeSlices(policy, settings.state_dir / _RECORD)
