"""A device's health in words: for GPUNode status, conditions, Events and metrics (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sharing.api.node import Health
from sharing.node.health import Ailment, State, is_ill

NODE_CONDITION: Final = "GPUHealthy"
"""Type of the condition on the Node object."""
CORDONED: Final = "Cordoned"
UNREADABLE: Final = "Unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """A GPU or MIG instance with what is known against it."""

    index: int
    """Of the GPU."""
    uuid: str
    device: str
    """The GPU's UUID, or the device id of one of its MIG instances."""
    ailment: Ailment

    @property
    def name(self) -> str:
        """Which device it is."""
        instance = self.device.removeprefix(self.uuid).removeprefix("::")
        part = f", MIG instance {instance}" if instance else ""
        return f"GPU {self.index} ({self.uuid}){part}"

    def __str__(self) -> str:
        return f"{self.name}: {described(self.ailment)}"


def described(ailment: Ailment) -> str:
    """XID, action and since when, in one clause."""
    text = f"{ailment.reason}: {ailment.message}"
    if ailment.advice:
        text += f"; {ailment.action}: {ailment.advice}"
    relapsed = f", relapse {ailment.relapses}" if ailment.relapses else ""
    return f"{text}; {ailment.state} since {stamp(ailment.since)}{relapsed}"


def health_of(ailment: Ailment | None, *, lost: bool = False, cordoned: bool = False) -> Health:
    """What GPUNode status says of a GPU.

    Args:
        ailment: What is known against it.
        lost: Whether the driver cannot read it.
        cordoned: Whether people took it out.
    """
    if ailment is not None and (is_ill(ailment) or not (lost or cordoned)):
        return Health(
            healthy=ailment.state.takes_work,
            state=str(ailment.state),
            reason=ailment.reason,
            message=ailment.message,
            xid=ailment.xid,
            action=str(ailment.action),
            since=stamp(ailment.since),
        )
    if lost:
        return Health(
            healthy=False,
            state=str(State.UNHEALTHY),
            reason=UNREADABLE,
            message="the driver cannot read it",
        )
    if cordoned:
        return Health(healthy=False, reason=CORDONED, message="GPUNode.spec cordons it")
    return Health()


def fault_of(ailments: Mapping[str, Ailment], uuid: str, device: str) -> Health | None:
    """What a MIG instance has by itself; None for the share of another kind, or a sound one."""
    ailment = ailments.get(device) if device != uuid else None
    return health_of(ailment) if ailment is not None and is_ill(ailment) else None


def patients(
    gpus: Sequence[tuple[int, str]], ailments: Mapping[str, Ailment]
) -> tuple[Patient, ...]:
    """Everything that is known against these GPUs and their instances now, by index.

    Args:
        gpus: Index and UUID of each.
        ailments: By GPU UUID or device id.
    """
    return tuple(
        Patient(index=index, uuid=uuid, device=device, ailment=ailment)
        for index, uuid in sorted(gpus)
        for device, ailment in sorted(ailments.items())
        if device.partition("::")[0] == uuid and ailment.state is not State.RECOVERED
    )


def health_changes(
    before: Sequence[Patient], after: Sequence[Patient]
) -> Iterator[tuple[str, str, bool]]:
    """What is worth an Event between two moments: reason, message, and whether it is a warning."""
    was = {each.device: each for each in before}
    now = {each.device: each for each in after}
    for device, each in now.items():
        old = was.get(device)
        same = old is not None and old.ailment.reason == each.ailment.reason
        if is_ill(each.ailment):
            if old is None or not is_ill(old.ailment) or not same:
                yield (
                    "GpuUnhealthy",
                    f"{each.name} takes no new work: {described(each.ailment)}",
                    True,
                )
        elif old is not None and is_ill(old.ailment):
            yield "GpuRecovered", f"{each.name} takes work again: {described(each.ailment)}", False
        elif not same:
            yield "GpuSuspect", f"{each.name} is suspect: {described(each.ailment)}", True
    for device, each in was.items():
        if device not in now and is_ill(each.ailment):
            yield "GpuRecovered", f"{each.name} takes work again", False


def healthy_condition(found: Sequence[Patient], silent: Sequence[str] = ()) -> tuple[str, str, str]:
    """Status, reason and message of the condition about the node's GPUs.

    Args:
        found: What is known against its devices.
        silent: GPUs of which nothing is known, each with why.
    """
    ill = [each for each in found if is_ill(each.ailment)]
    if ill or silent:
        whole = silent or any(each.device == each.uuid for each in ill)
        reason = "GpusUnhealthy" if whole else "InstancesUnhealthy"
        return "False", reason, "; ".join([*map(str, ill), *silent])
    if found:
        return "True", "GpusSuspect", "; ".join(map(str, found))
    return "True", "AllHealthy", ""


def stamp(moment: float) -> str:
    """A Unix time as Kubernetes writes it."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
