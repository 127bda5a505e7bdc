"""What plugins advertise, and what the node offers because of it.

Capacity is all devices, allocatable the healthy ones. Every list is complete: it replaces
the one before. A resource whose plugin stayed away too long leaves the table; the node
keeps its key at 0 (device plugin documentation; pkg/kubelet/cm/devicemanager/manager.go).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sharing.plugin.proto import deviceplugin_pb2 as api

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSet:
    """The devices of one resource.

    Attributes:
        healthy: Ids that may be assigned.
        unhealthy: Ids that exist and may not.
        numa: NUMA nodes by id; an id without known nodes is left out.
    """

    healthy: frozenset[str] = frozenset()
    unhealthy: frozenset[str] = frozenset()
    numa: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, devices: Iterable[api.Device]) -> DeviceSet:
        """The set that a plugin's list describes; of an id listed twice the last counts."""
        by_id = {device.ID: device for device in devices}
        healthy = frozenset(id_ for id_, one in by_id.items() if one.health == HEALTHY)
        return cls(
            healthy=healthy,
            unhealthy=frozenset(by_id) - healthy,
            numa={
                id_: tuple(sorted(node.ID for node in one.topology.nodes))
                for id_, one in by_id.items()
                if one.topology.nodes
            },
        )

    @property
    def all(self) -> frozenset[str]:
        """Every id."""
        return self.healthy | self.unhealthy

    def unwell(self) -> DeviceSet:
        """The same devices, none of them healthy."""
        return replace(self, healthy=frozenset(), unhealthy=self.all)

    def health(self, id_: str) -> str:
        """``Healthy`` or ``Unhealthy``; a device that is not listed is the latter."""
        return HEALTHY if id_ in self.healthy else UNHEALTHY


class DeviceTable:
    """The devices of all resources that plugins have registered."""

    def __init__(self) -> None:
        self._sets: dict[str, DeviceSet] = {}
        self._dropped: set[str] = set()

    def __contains__(self, resource: str) -> bool:
        return resource in self._sets

    def get(self, resource: str) -> DeviceSet:
        """The devices of a resource; none for one that nobody registered."""
        return self._sets.get(resource, DeviceSet())

    def put(self, resource: str, devices: DeviceSet) -> None:
        """Replace the devices of a resource."""
        self._sets[resource] = devices
        self._dropped.discard(resource)

    def fail(self, resource: str) -> None:
        """Make all devices of a resource unhealthy, because its plugin is gone."""
        self._sets[resource] = self.get(resource).unwell()

    def drop(self, resource: str) -> None:
        """Forget a resource; the node shows 0 of it from now on."""
        if self._sets.pop(resource, None) is not None:
            self._dropped.add(resource)

    def resources(self) -> tuple[str, ...]:
        """Names of all resources that are known, in order."""
        return tuple(sorted(self._sets))

    def capacity(self) -> dict[str, int]:
        """How many devices there are of each resource, 0 of those dropped."""
        return dict.fromkeys(self._dropped, 0) | {
            name: len(devices.all) for name, devices in self._sets.items()
        }

    def allocatable(self) -> dict[str, int]:
        """How many of them may be assigned, held or not."""
        return dict.fromkeys(self._dropped, 0) | {
            name: len(devices.healthy) for name, devices in self._sets.items()
        }
