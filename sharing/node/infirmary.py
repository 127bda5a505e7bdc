"""Who is ill on this node: events and looks go in, ailments come out; see ``health``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from sharing.node.finding import Finding, finding_of, sign_of
from sharing.node.gpus import Sighting
from sharing.node.health import (
    Ailment,
    HealthPolicy,
    Probe,
    State,
    after_probe,
    after_sign,
    is_ill,
    state_of,
)
from sharing.node.observed import GpuState
from sharing.node.symptoms import ends_co_tenants, findings_of, patient_of
from sharing.node.xid import Reaction, Sign
from sharing.nvml.observed import DriverEvent, EventKind, ObservedGpu, Vitals

_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthChange:
    """A device whose state changed."""

    device: str
    """GPU UUID, or device id of a MIG instance."""
    before: State
    after: State
    ailment: Ailment
    """What is, or was, known against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoTenantsEnded:
    """A program's mistake that ended those of others; the device is well."""

    gpu: str
    place: str
    """The MIG instance that they shared, by device id, or the GPU's UUID."""
    xid: int
    name: str


HealthNews = HealthChange | CoTenantsEnded


def _nobody(_news: HealthNews) -> None:
    return


class Infirmary:
    """What is known against a node's GPUs and MIG instances.

    Args:
        policy: When a device is ill and when it is well again.
        ailments: What an earlier agent knew, by GPU UUID or device id.
        tell: Called with everything that happens.
    """

    def __init__(
        self,
        policy: HealthPolicy,
        ailments: dict[str, Ailment],
        tell: Callable[[HealthNews], None] = _nobody,
    ) -> None:
        self._policy = policy
        self._ailments = ailments
        self._tell = tell
        self._vitals: dict[str, Vitals] = {}
        self._present: frozenset[str] | None = None
        self._cordoned: frozenset[str] = frozenset()
        self.xids: Counter[tuple[str, int, str]] = Counter()
        """XIDs seen, by GPU UUID, number and reaction."""
        self.nameless: tuple[str, ...] = ()
        """GPUs of which only the index is known, and why: they never answered."""

    @property
    def ailments(self) -> Mapping[str, Ailment]:
        """All ailments, past ones too, by GPU UUID or device id."""
        return dict(self._ailments)

    @property
    def occupied(self) -> bool:
        """Whether anybody who is here is ill now, or never answered, so that probes are due."""
        return bool(self.nameless) or any(
            is_ill(one) and (self._present is None or _gpu_of(device) in self._present)
            for device, one in self._ailments.items()
        )

    def hear(self, event: DriverEvent, gpus: Iterable[GpuState]) -> bool:
        """Take in an event; whether the kubelet has to be told."""
        known = tuple(gpus)
        if event.uuid is None:
            return False  # which GPU it is shows at the look that follows
        if event.kind is EventKind.XID:
            rule = self._policy.table.of_xid(event.data)
            self.xids[event.uuid, event.data, str(rule.reaction)] += 1
            if ends_co_tenants(event, known, self._policy):
                place = patient_of(event, known, self._policy) or event.uuid
                self._tell(
                    CoTenantsEnded(gpu=event.uuid, place=place, xid=event.data, name=rule.name)
                )
        finding = finding_of(event, self._policy.table)
        patient = patient_of(event, known, self._policy)
        if finding is None or patient is None:
            return False
        return self._admit(patient, finding)

    def lose_sight(self, gpus: Iterable[GpuState], reason: str) -> None:
        """The driver does not answer: nobody can say that a GPU is well."""
        finding = sign_of(Sign.DRIVER_UNAVAILABLE, self._policy.table, reason, steady=True)
        if finding is not None:
            for gpu in gpus:
                self._admit(gpu.uuid, finding)

    def see(self, sighting: Sighting) -> None:
        """Take in a look at all GPUs: who does not answer, who is well again."""
        gpus = sighting.node.gpus
        self._present = frozenset(gpu.uuid for gpu in gpus if gpu.uuid)
        self.nameless = tuple(
            f"GPU {gpu.index}: {gpu.fault.reason}"
            for gpu in gpus
            if not gpu.uuid and gpu.fault is not None
        )
        for gpu in gpus:
            if gpu.uuid:
                self._examine(gpu)

    def note_cordoned(self, gpus: Iterable[str]) -> None:
        """Take in which GPUs people have cordoned.

        One that is given back after a cordon was looked at by somebody: what is known against
        it is forgotten, its flaps included. If it is still ill, the next look tells.
        """
        now = frozenset(gpus)
        for uuid in sorted(self._cordoned - now):
            for device in [one for one in self._ailments if _gpu_of(one) == uuid]:
                self._become(device, self._ailments[device], None)
        self._cordoned = now

    def _examine(self, gpu: ObservedGpu) -> None:
        ailment = self._ailments.get(gpu.uuid)
        hot = ailment is not None and is_ill(ailment) and ailment.reason == Sign.OVERHEATED
        findings = findings_of(gpu, self._vitals.get(gpu.uuid), self._policy, hot=hot)
        if gpu.readable:
            self._vitals[gpu.uuid] = gpu.vitals
        for finding in findings:
            self._admit(gpu.uuid, finding)
        well = not any(finding.rule.reaction is Reaction.ACT for finding in findings)
        probe = Probe(readable=gpu.readable, well=well)
        for device in [one for one in self._ailments if _gpu_of(one) == gpu.uuid]:
            before = self._ailments[device]
            self._become(device, before, after_probe(before, probe, time.time(), self._policy))

    def _admit(self, device: str, finding: Finding) -> bool:
        before = self._ailments.get(device)
        after = after_sign(before, finding, time.time(), self._policy)
        self._become(device, before, after)
        return is_ill(before) != is_ill(after)

    def _become(self, device: str, before: Ailment | None, after: Ailment | None) -> None:
        if after is None:
            self._ailments.pop(device, None)
        else:
            self._ailments[device] = after
        old, new, ailment = state_of(before), state_of(after), after or before
        told = before is not None and after is not None and before.reason == after.reason
        if ailment is None or (old is new and told):
            return
        fields = {"device": device, "reason": ailment.reason, "why": ailment.message}
        if is_ill(after) and not is_ill(before):
            _log.warning("device fell ill", action=str(ailment.action), **fields)
        elif is_ill(before) and not is_ill(after):
            _log.info("device is well again", **fields)
        elif new is State.SUSPECT:
            _log.warning("device became suspect", **fields)
        self._tell(HealthChange(device=device, before=old, after=new, ailment=ailment))


def _gpu_of(device: str) -> str:
    return device.partition("::")[0]
