"""Admission of a pod to its node: assign devices, then check that everything fits.

The order is the kubelet's: the topology manager has devices allocated first, then the
scheduler's own rules are asked again (``lifecycle/predicate.go``). A refusal is final: the
pod fails and is not tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from embedded.errors import EmbeddedError
from embedded.kubelet.choosing import Need, ShortageError, choose
from embedded.kubelet.devices import DeviceTable
from embedded.kubelet.endpoint import PluginError
from embedded.kubelet.ledger import Holding, Ledger
from embedded.kubelet.plugins import Plugins
from embedded.kubelet.podspec import Member, Role, members_of
from embedded.scheduler.amounts import Amounts, added, amounts_of
from embedded.scheduler.decision import selects
from embedded.scheduler.demand import demand_of
from embedded.scheduler.fit import shortages
from embedded.scheduler.views import Node, Pod

_log = structlog.get_logger()


class RefusedError(EmbeddedError):
    """A pod that is not admitted.

    Attributes:
        reason: The pod's status reason.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__("", message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Admits pods to one node.

    Attributes:
        plugins: Whom to ask.
        table: What there is.
        ledger: Who holds what; assignments are entered here.
        save: Writes the checkpoint.
        align: Whether devices of one NUMA node are preferred.
        seed: What arbitrary choices are drawn by.
        forgotten: Resource and device of what is held but taken for free, by a fault.
    """

    plugins: Plugins
    table: DeviceTable
    ledger: Ledger
    save: Callable[[], None]
    align: bool = False
    seed: str = ""
    forgotten: set[tuple[str, str]] = field(default_factory=set)

    async def assign(self, pod: Mapping[str, Any], running: Callable[[str], bool]) -> None:
        """Assign devices to all containers of a pod.

        Args:
            pod: The Pod object.
            running: Whether a container runs already, from before a kubelet restart; such
                a container keeps what it has, whatever became of its plugin.

        Raises:
            RefusedError: If devices are missing or a plugin refuses.
        """
        uid = str(pod["metadata"]["uid"])
        reusable: dict[str, set[str]] = {}
        for member in members_of(pod):
            if not running(member.name):
                await self._assign_member(pod, member, reusable)
            for resource, holding in self.ledger.of(uid, member.name).items():
                if member.role is Role.INIT:
                    reusable.setdefault(resource, set()).update(holding.devices)
                else:
                    reusable.get(resource, set()).difference_update(holding.devices)

    async def assign_late(self, pod: Mapping[str, Any], member: Member) -> None:
        """Assign what a container lacks when it is about to start.

        For pods that were admitted while a plugin was unknown.

        Raises:
            RefusedError: If devices are missing or a plugin refuses.
        """
        uid = str(pod["metadata"]["uid"])
        held = self.ledger.of(uid, member.name)
        if any(resource not in held for resource in self._asked(member)):
            await self._assign_member(pod, member, {})

    def _asked(self, member: Member) -> dict[str, int]:
        """What a container asks of plugins, in order of resource names."""
        limits = amounts_of((member.spec.get("resources") or {}).get("limits"))
        return {
            resource: count
            for resource, count in sorted(limits.items())
            if count > 0 and (resource in self.table or self.ledger.held(resource))
        }

    async def _assign_member(
        self, pod: Mapping[str, Any], member: Member, reusable: Mapping[str, set[str]]
    ) -> None:
        uid = str(pod["metadata"]["uid"])
        for resource, count in self._asked(member).items():
            held = self.ledger.of(uid, member.name).get(resource)
            try:
                self._check_health(resource, held)
                if held is None:
                    reuse = reusable.get(resource, set())
                    await self._allocate(pod, member, resource, count=count, reusable=reuse)
            except (ShortageError, PluginError) as error:
                raise RefusedError(
                    "UnexpectedAdmissionError",
                    f"Allocate failed due to {error}, which is unexpected",
                ) from error

    def _check_health(self, resource: str, held: Holding | None) -> None:
        """Whether a resource can be assigned from, and what is held of it is still well.

        The second matters after a reboot, when pods come back with devices from the
        checkpoint (kubernetes#109595).
        """
        if resource not in self.table:
            raise PluginError("", f"cannot allocate unregistered device {resource}")
        healthy = self.table.get(resource).healthy
        if not healthy:
            raise PluginError(
                "", f"no healthy devices present; cannot allocate unhealthy devices {resource}"
            )
        if held is not None and not healthy.issuperset(held.devices):
            raise PluginError(
                "",
                "previously allocated devices are no longer healthy; "
                f"cannot allocate unhealthy devices {resource}",
            )

    async def _allocate(
        self,
        pod: Mapping[str, Any],
        member: Member,
        resource: str,
        *,
        count: int,
        reusable: set[str],
    ) -> None:
        metadata = pod["metadata"]
        devices = self.table.get(resource)
        endpoint = self.plugins.endpoint(resource)
        need = Need(
            resource=resource,
            count=count,
            reusable=frozenset(reusable),
            free=devices.healthy - self._taken(resource),
            numa=devices.numa,
            align=self.align,
            seed=f"{self.seed}/{metadata.get('namespace')}/{metadata['name']}/{member.name}",
        )
        advises = endpoint is not None and endpoint.options.get_preferred_allocation_available
        chosen = await choose(need, endpoint.advise if endpoint and advises else None)
        if endpoint is None:
            raise PluginError("", f"unknown Device Plugin {resource}")
        try:
            answer = await endpoint.allocate(chosen)
        except PluginError:
            self.forgotten.clear()  # as upstream: what is taken is counted anew
            raise
        numa = {id_: devices.numa[id_] for id_ in chosen if id_ in devices.numa}
        holding = Holding(devices=chosen, answer=answer, numa=numa)
        self.ledger.put(str(metadata["uid"]), member.name, resource, holding)
        try:
            self.save()
        except OSError as error:
            raise PluginError("", f"failed to write checkpoint: {error}") from error
        _log.debug("devices were assigned", pod=metadata["name"], container=member.name)

    def _taken(self, resource: str) -> frozenset[str]:
        """What counts as taken: all that is held, but for what was forgotten."""
        held = self.ledger.held(resource)
        return held - {device for name, device in self.forgotten if name == resource}

    def check_fit(self, pod: Mapping[str, Any], others: Sequence[Amounts], node: Node) -> None:
        """Ask the scheduler's rules once more.

        Args:
            pod: The pod to admit.
            others: What each pod needs that is admitted to the node and not finished.
            node: The node with what it offers now.

        Raises:
            RefusedError: If the pod does not fit or does not select the node.
        """
        demand = demand_of(pod["spec"])
        # A resource that the node has never heard of is somebody else's business.
        known = {
            name: n for name, n in demand.items() if name in node.allocatable or "/" not in name
        }
        offered = self._with_held(node.allocatable)
        used = added(*others)
        for one in shortages(known, used=used, pods=len(others), allocatable=offered):
            raise RefusedError(
                f"OutOf{one.resource}",
                f"Node didn't have enough resource: {one.resource}, requested: "
                f"{one.requested}, used: {one.used}, capacity: {one.capacity}",
            )
        if not selects(Pod.of(pod), node):
            raise RefusedError(
                "NodeAffinity",
                "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            )

    def _with_held(self, allocatable: Amounts) -> dict[str, int]:
        """What the node offers, never less than what is held (``sanitizeNodeAllocatable``).

        Lest a pod that holds a device that fell ill is refused at its kubelet's restart.
        """
        return {
            name: max(amount, len(self.ledger.held(name))) for name, amount in allocatable.items()
        }
