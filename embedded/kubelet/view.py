"""What a container sees: its environment, device nodes and mounts, and who decided each.

Precedence as on a real node: a CDI edit beats the pod's own ``env``, which beats what the
plugin's Allocate returned. That is why whatever must hold belongs into CDI edits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from embedded.kubelet.cdi import Edits, Mount, Node
from embedded.kubelet.ledger import Holding

CDI_ANNOTATION_PREFIX: Final = "cdi.k8s.io/"


class Origin(StrEnum):
    """Who set a variable."""

    ALLOCATE = "allocate"
    POD = "pod"
    CDI = "cdi"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerView:
    """One container's view.

    Attributes:
        namespace: The pod's namespace.
        pod: The pod's name.
        uid: The pod's uid.
        container: The container's name.
        devices: Device ids by resource.
        env: Variables.
        env_from: Who set each of them.
        nodes: Device nodes.
        mounts: Mounts that plugin and CDI asked for.
        annotations: Annotations for the runtime, from the plugin.
        cdi_devices: CDI names, from the plugin.
    """

    namespace: str
    pod: str
    uid: str
    container: str
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    env_from: Mapping[str, Origin] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The view as plain values, for a file."""
        return asdict(self)


def cdi_names(holdings: Mapping[str, Holding]) -> tuple[str, ...]:
    """The CDI names that plugins' answers carry, as fields and as annotations."""
    names: list[str] = []
    for holding in holdings.values():
        names += [device.name for device in holding.answer.cdi_devices]
        for key, value in sorted(holding.answer.annotations.items()):
            if key.startswith(CDI_ANNOTATION_PREFIX):
                names += [name.strip() for name in value.split(",") if name.strip()]
    return tuple(dict.fromkeys(names))


def view_of(
    *,
    pod: Mapping[str, Any],
    container: str,
    env: Mapping[str, str],
    holdings: Mapping[str, Holding],
    edits: Edits,
) -> ContainerView:
    """Put together what a container sees.

    Args:
        pod: The Pod object.
        container: The container's name.
        env: What the pod's spec sets.
        holdings: What the container holds, by resource, with the plugins' answers.
        edits: What the CDI names of those answers resolved to.
    """
    metadata = pod.get("metadata") or {}
    merged: dict[str, tuple[str, Origin]] = {}
    nodes: dict[str, Node] = {}
    mounts: dict[str, Mount] = {}
    annotations: dict[str, str] = {}
    for holding in holdings.values():
        answer = holding.answer
        merged |= {name: (value, Origin.ALLOCATE) for name, value in sorted(answer.envs.items())}
        annotations |= dict(sorted(answer.annotations.items()))
        for device in answer.devices:
            nodes[device.container_path] = Node(
                path=device.container_path,
                host_path=device.host_path,
                permissions=device.permissions,
            )
        for mount in answer.mounts:
            mounts[mount.container_path] = Mount(
                container_path=mount.container_path,
                host_path=mount.host_path,
                read_only=mount.read_only,
            )
    merged |= {name: (value, Origin.POD) for name, value in env.items()}
    merged |= {name: (value, Origin.CDI) for name, value in edits.env}
    nodes |= {node.path: node for node in edits.nodes}
    mounts |= {mount.container_path: mount for mount in edits.mounts}
    return ContainerView(
        namespace=str(metadata.get("namespace") or ""),
        pod=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        container=container,
        devices={resource: holding.devices for resource, holding in holdings.items()},
        env={name: value for name, (value, _) in sorted(merged.items())},
        env_from={name: origin for name, (_, origin) in sorted(merged.items())},
        nodes=tuple(nodes.values()),
        mounts=tuple(mounts.values()),
        annotations=annotations,
        cdi_devices=cdi_names(holdings),
    )
