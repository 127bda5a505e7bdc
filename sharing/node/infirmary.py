"""Who is ill on this node: events and looks go in, ailments come out; see ``health``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from sharing.node.gpus import Sighting
from sharing.node.health import (
    Ailment,
    Finding,
    HealthPolicy,
    Probe,
    fell_ill,
    finding_of,
    is_ill,
    probed,
)
from sharing.node.observed import GpuState
from sharing.nvml.codes import RecoveryAction
from sharing.nvml.observed import DriverEvent, ObservedGpu

_log: Final = structlog.get_logger()


class Infirmary:
    """The ailments of a node's GPUs and MIG instances.

    Args:
        policy: When a device is ill and when it is well again.
        ailments: Those that an earlier agent knew, by GPU UUID or device id.
    """

    def __init__(self, policy: HealthPolicy, ailments: dict[str, Ailment]) -> None:
        self._policy = policy
        self._ailments = ailments

    @property
    def ailments(self) -> Mapping[str, Ailment]:
        """All ailments, past ones too, by GPU UUID or device id."""
        return dict(self._ailments)

    @property
    def occupied(self) -> bool:
        """Whether anybody is ill now."""
        return any(is_ill(one) for one in self._ailments.values())

    def hear(self, event: DriverEvent, gpus: Iterable[GpuState]) -> bool:
        """Take in an event; whether it made somebody ill.

        An event that names an instance concerns that one; the whole GPU where the instance is
        not known.
        """
        finding = finding_of(event, self._policy)
        if finding is None or event.uuid is None:
            return False
        patient = _instance_of(event, gpus) or event.uuid
        self._admit(patient, finding)
        return True

    def lose_sight(self, gpus: Iterable[GpuState], reason: str) -> None:
        """The driver does not answer: nobody can say that a GPU is well."""
        for gpu in gpus:
            self._admit(gpu.uuid, Finding(reason="DriverUnavailable", message=reason))

    def see(self, sighting: Sighting) -> None:
        """Take in a look at all GPUs: who does not answer, who is well again."""
        for gpu in sighting.node.gpus:
            if not gpu.uuid:
                continue
            finding = _seen(gpu)
            if finding is not None:
                self._admit(gpu.uuid, finding)
            self._probe(gpu)

    def _admit(self, patient: str, finding: Finding) -> None:
        before = self._ailments.get(patient)
        after = fell_ill(before, finding, time.time(), self._policy)
        self._ailments[patient] = after
        if not is_ill(before):
            _log.warning("device fell ill", device=patient, reason=after.reason, why=after.message)

    def _probe(self, gpu: ObservedGpu) -> None:
        probe = Probe(readable=gpu.readable, recovery_action=gpu.recovery_action)
        for patient, ailment in sorted(self._ailments.items()):
            if patient.partition("::")[0] != gpu.uuid or not is_ill(ailment):
                continue
            after = probed(ailment, probe, time.time(), self._policy)
            self._ailments[patient] = after
            if not is_ill(after):
                _log.info("device is well again", device=patient, reason=after.reason)


def _seen(gpu: ObservedGpu) -> Finding | None:
    if gpu.fault is not None:
        reason = "GpuLost" if gpu.lost else "GpuUnreadable"
        return Finding(reason=reason, message=gpu.fault.reason)
    if gpu.recovery_action is not RecoveryAction.NONE:
        action = gpu.recovery_action.name.lower().replace("_", " ")
        return Finding(reason="RecoveryAction", message=f"the driver recommends {action}")
    return None


def _instance_of(event: DriverEvent, gpus: Iterable[GpuState]) -> str | None:
    if event.gi_id is None:
        return None
    for gpu in gpus:
        for one in gpu.instances if gpu.uuid == event.uuid else ():
            if one.gi_id == event.gi_id:
                return one.device_id(gpu.uuid)
    return None
