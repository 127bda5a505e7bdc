"""Who holds which device: the kubelet's book, by pod, container and resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sharing.plugin.proto import deviceplugin_pb2 as api


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one container holds of one resource.

    Attributes:
        devices: Device ids, in order.
        answer: What Allocate said, kept for the container's whole life.
        numa: NUMA nodes by device.
    """

    devices: tuple[str, ...]
    answer: api.ContainerAllocateResponse = field(default_factory=api.ContainerAllocateResponse)
    numa: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


class Ledger:
    """All holdings of a node."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, dict[str, Holding]]] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def put(self, uid: str, container: str, resource: str, holding: Holding) -> None:
        """Enter a holding."""
        self._pods.setdefault(uid, {}).setdefault(container, {})[resource] = holding

    def release(self, uid: str) -> bool:
        """Strike everything that a pod holds; whether it held anything."""
        return self._pods.pop(uid, None) is not None

    def of(self, uid: str, container: str) -> Mapping[str, Holding]:
        """What one container holds, by resource, in order of names."""
        return dict(sorted(self._pods.get(uid, {}).get(container, {}).items()))

    def held(self, resource: str) -> frozenset[str]:
        """Every device of a resource that somebody holds."""
        return frozenset(
            device
            for _, _, name, holding in self.entries()
            if name == resource
            for device in holding.devices
        )

    def entries(self) -> Iterator[tuple[str, str, str, Holding]]:
        """All holdings as pod uid, container, resource, holding; in that order."""
        for uid, containers in sorted(self._pods.items()):
            for container, resources in sorted(containers.items()):
                for resource, holding in sorted(resources.items()):
                    yield uid, container, resource, holding

    def pods(self) -> tuple[str, ...]:
        """Uids of the pods that hold something, in order."""
        return tuple(sorted(self._pods))
