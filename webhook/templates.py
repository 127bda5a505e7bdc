"""Pod templates inside objects of any kind, for whoever looks at files.

Kinds that the server knows have their templates where ``workload`` says, and Kubernetes' own kinds
must have one there. What else holds a mapping with a list of ``containers`` below a ``spec`` is
found by searching. The server does not search, and so the two are not one: it patches what is
stored, and must touch nothing that only looks like a template, and a search of a hostile object
costs what a look-up does not. A test holds the search to the table's places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sharing.documents import KubeObject
from sharing.errors import InputError, shown
from webhook.patch import PatchOperation, add, escape
from webhook.workload import TEMPLATE_PATHS

_OWN: Final = frozenset(
    {
        ("v1", "PodTemplate"),
        ("v1", "ReplicationController"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("batch", "Job"),
        ("batch", "CronJob"),
    }
)
"""Kinds of Kubernetes itself, by group; each has one template."""
_DEEPEST: Final = 12
"""Levels below an object that are searched; Ray's jobs have their templates at the sixth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """What an object makes pods of."""

    pointer: str
    """JSON pointer to the template within the object; empty where the object is the pod."""
    pod: dict[str, Any]
    """A pod as it will ask for admission, made of the template."""
    lacks_metadata: bool
    """Whether the template has no metadata for a patch to work on."""

    def relocate(self, operations: tuple[PatchOperation, ...]) -> tuple[PatchOperation, ...]:
        """Operations on the pod as operations on the object that holds the template."""
        moved = tuple(
            PatchOperation(operation.op, self.pointer + operation.path, operation.value)
            for operation in operations
        )
        if self.lacks_metadata and any(o.path.startswith("/metadata") for o in operations):
            return (add(f"{self.pointer}/metadata", {}), *moved)
        return moved


def templates_of(found: KubeObject) -> tuple[PodTemplate, ...]:
    """The pod templates of an object; none for an object that makes no pods.

    Raises:
        InputError: A kind that must have a template has none.
    """
    group = found.api_version.partition("/")[0]
    if (group, found.kind) == ("v1", "Pod"):
        path: tuple[str, ...] = ()
    elif (group, found.kind) in _OWN:
        (path,) = TEMPLATE_PATHS[found.kind]
    else:
        places = _search(found.value, (), 0)
        return tuple(_template(found, place, template) for place, template in places)
    value: Any = found.value
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(value.get("spec"), dict):
        field = ".".join((*path, "spec"))
        said = value.get("spec") if isinstance(value, dict) else value
        raise InputError(
            found.subject,
            f"{field} is {shown(said)}",
            expected="the spec of a pod",
            example="spec: {containers: [{name: main, image: app:1}]}",
        )
    return (_template(found, path, value),)


def _search(value: Any, path: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], Any]]:
    if depth > _DEEPEST:
        return
    if isinstance(value, dict):
        spec = value.get("spec")
        if path and isinstance(spec, dict) and _looks_like_containers(spec.get("containers")):
            yield path, value
            return
        for key, item in value.items():
            yield from _search(item, (*path, key), depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _search(item, (*path, str(index)), depth + 1)


def _looks_like_containers(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in value)
    )


def _template(found: KubeObject, path: tuple[str, ...], template: dict[str, Any]) -> PodTemplate:
    metadata = template.get("metadata")
    own = metadata if isinstance(metadata, dict) else {}
    if not path:
        pod = template if own is metadata else {**template, "metadata": own}
        return PodTemplate(pointer="", pod=pod, lacks_metadata=own is not metadata)
    # Controllers name their pods; until then a message can only name the owner.
    named = own if own.get("name") or own.get("generateName") else _named(own, found.name)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": template["spec"]}
    pointer = "".join(f"/{escape(key)}" for key in path)
    return PodTemplate(pointer=pointer, pod=pod, lacks_metadata=not isinstance(metadata, dict))


def _named(metadata: dict[str, Any], owner: str) -> dict[str, Any]:
    return {**metadata, "generateName": f"{owner}-"} if owner else metadata
