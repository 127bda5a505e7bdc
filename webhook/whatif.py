"""What a change of policy changes: two previews of the same objects, compared.

Pure. What counts is what a tenant would notice: another verdict, another grant, other nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import jsonpatch

from sharing.inventory import Inventory
from sharing.shareclass import ShareClass
from webhook.container import mapping
from webhook.grant import Grant
from webhook.nodes import Need, NodeIndex
from webhook.preview import JudgedPod, Preview
from webhook.verdict import VerdictKind
from webhook.where import where_of

_PLACEMENT: Final = ("nodeSelector", "affinity", "tolerations", "schedulerName", "runtimeClassName")
_MEMORY_SUFFIX: Final = ".memory-mib"


class Aspect(StrEnum):
    """What of an object changes."""

    VERDICT = "verdict"
    GRANT = "grant"
    NODES = "nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What becomes of an object, as far as it is compared."""

    preview: Preview
    nodes: tuple[str, ...] | None
    """Ready nodes on which each of its pods could run; None where nothing is known about nodes."""
    placement: tuple[Mapping[str, Any], ...]
    """What its pods say about nodes, one entry a pod."""

    @property
    def denied(self) -> bool:
        """Whether it makes no pods at all."""
        return self.preview.kind is VerdictKind.DENY

    @property
    def grants(self) -> tuple[tuple[str, str, int], ...]:
        """Container, resource and count of each grant."""
        return tuple((g.container, g.resource, g.count) for g in self.preview.grants)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An object of which something would be different."""

    now: Outlook
    then: Outlook
    aspects: tuple[Aspect, ...]

    @property
    def newly_denied(self) -> bool:
        """Whether it is admitted now and would not be."""
        return self.then.denied and not self.now.denied


def compare(
    now: Iterable[Preview], then: Iterable[Preview], inventory: Inventory | None
) -> tuple[Change, ...]:
    """The objects that change, in their order.

    Args:
        now: Previews under the policies that there are.
        then: Previews of the same objects under the others.
        inventory: What nodes offer; None where nothing is known about nodes.
    """
    index = None if inventory is None else _Nodes(inventory)
    changes = []
    for before, after in zip(now, then, strict=True):
        if before.pods == after.pods:
            continue
        change = _compared(_outlook(before, index), _outlook(after, index))
        if change.aspects:
            changes.append(change)
    return tuple(changes)


def _compared(now: Outlook, then: Outlook) -> Change:
    elsewhere = now.nodes != then.nodes or now.placement != then.placement
    different = {
        Aspect.VERDICT: now.preview.kind is not then.preview.kind,
        Aspect.GRANT: now.grants != then.grants,
        # What is denied runs nowhere; the verdict says so.
        Aspect.NODES: elsewhere and not (now.denied or then.denied),
    }
    aspects = tuple(aspect for aspect, is_different in different.items() if is_different)
    return Change(now=now, then=then, aspects=aspects)


class _Nodes:
    """The ready nodes of an inventory, by name."""

    def __init__(self, inventory: Inventory) -> None:
        ready = [node for node in inventory.nodes if node.ready]
        self._names = [node.name for node in ready]
        self._index = NodeIndex(ready)

    def fit(self, spec: Mapping[str, Any], grants: Iterable[Grant]) -> frozenset[str]:
        """Nodes that a pod may run on and that have its shares."""
        bits = self._index.having(_needs(spec, grants), self._index.fulfilling(where_of(spec, ())))
        return frozenset(name for place, name in enumerate(self._names) if bits >> place & 1)


def _outlook(preview: Preview, index: _Nodes | None) -> Outlook:
    denied = preview.kind is VerdictKind.DENY
    specs = [] if denied else [_placed(judged) for judged in preview.pods]
    nodes: tuple[str, ...] | None = None
    if index is not None:
        fitting = [
            index.fit(spec, judged.verdict.grants)
            for spec, judged in zip(specs, preview.pods, strict=False)
        ]
        nodes = tuple(sorted(frozenset().union(*fitting)))
    return Outlook(preview=preview, nodes=nodes, placement=tuple(map(_said, specs)))


def _placed(judged: JudgedPod) -> Mapping[str, Any]:
    """The pod's spec with what the patch says about nodes."""
    paths = tuple(f"/spec/{key}" for key in _PLACEMENT)
    operations = [
        operation.to_json()
        for operation in judged.verdict.operations
        if operation.path.startswith(paths)
    ]
    spec = mapping(judged.pod, "spec")
    if operations:
        patched = jsonpatch.apply_patch({"spec": spec}, operations)
        return mapping(patched, "spec")
    return spec


def _said(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a spec says about nodes; without amounts of memory, which follow from the grant."""
    said = {key: spec[key] for key in _PLACEMENT if key in spec}
    return {key: value for key, value in ((k, _bare(v)) for k, v in said.items()) if value}


def _bare(value: Any) -> Any:
    """The value without conditions on amounts of memory, and without what is empty then."""
    if isinstance(value, dict):
        return {key: kept for key, item in value.items() if (kept := _bare(item))}
    if isinstance(value, list):
        listed = [_bare(item) for item in value if not _is_memory(item)]
        return [item for item in listed if item]
    return value


def _is_memory(item: Any) -> bool:
    key = item.get("key") if isinstance(item, dict) else None
    return isinstance(key, str) and key.endswith(_MEMORY_SUFFIX)


def _needs(spec: Mapping[str, Any], grants: Iterable[Grant]) -> dict[ShareClass, Need]:
    """What a pod needs on its node: the sum of what runs at once."""
    sequential = {
        container.get("name")
        for container in spec.get("initContainers") or ()
        if isinstance(container, dict) and container.get("restartPolicy") != "Always"
    }
    together: dict[ShareClass, int] = {}
    alone: dict[ShareClass, int] = {}
    for grant in grants:
        share_class = grant.share_class
        if grant.container in sequential:
            alone[share_class] = max(alone.get(share_class, 0), grant.count)
        else:
            together[share_class] = together.get(share_class, 0) + grant.count
    floors = dict(_floors(spec.get("affinity")))
    return {
        share_class: Need(
            max(together.get(share_class, 0), alone.get(share_class, 0)),
            floors.get(share_class.memory_label, 0),
        )
        for share_class in {**together, **alone}
    }


def _floors(value: Any) -> Iterable[tuple[str, int]]:
    """Labels with the amounts, in MiB, that conditions demand."""
    if isinstance(value, dict):
        if _is_memory(value) and value.get("operator") == "Gt":
            values = value.get("values")
            if isinstance(values, list) and len(values) == 1 and str(values[0]).isdecimal():
                yield value["key"], int(values[0]) + 1
            return
        for item in value.values():
            yield from _floors(item)
    elif isinstance(value, list):
        for item in value:
            yield from _floors(item)
