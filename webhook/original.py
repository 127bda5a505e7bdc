"""A pod that was admitted already, taken back to what its author asked for, as far as it tells.

What containers asked for stands in the record on the pod, and is read from there wherever pods
are decided (``request``). What else the webhook wrote cannot be told from its author's own words:
a node selector that the profile adds may have been there before. It is taken as the profile's, so
that another profile is not judged by what this one wrote, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from sharing.api.profile import SharingProfile
from sharing.names import GRANTS_ANNOTATION
from webhook.container import containers_of, mapping
from webhook.grant import read_record
from webhook.policies import Policies
from webhook.resources import is_gpu_key

_PLAIN: Final = {"schedulerName": "scheduler_name", "runtimeClassName": "runtime_class_name"}


def as_asked(pod: dict[str, Any], policies: Policies) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A pod without what its profile wrote about nodes, and what cannot be known of it.

    Args:
        pod: A pod as a cluster holds it.
        policies: The cluster's; the recorded profile is looked up there.
    """
    pod = _unbound(pod)
    annotations = mapping(mapping(pod, "metadata"), "annotations")
    names = _profiles_of(annotations.get(GRANTS_ANNOTATION))
    if not names:
        return pod, ()
    unknown = list(_unexplained(pod, annotations[GRANTS_ANNOTATION]))
    spec = mapping(pod, "spec")
    for name in names:
        profile = policies.find(name)
        if profile is None:
            unknown.append(
                f"profile {name}, which admitted it, is gone: all that it says about nodes is "
                "taken as its author's"
            )
            continue
        spec, taken = _without_placement(spec, profile)
        if taken:
            unknown.append(f"{', '.join(taken)}: taken as profile {name}'s, not as its author's")
    return {**pod, "spec": spec}, tuple(unknown)


def _unbound(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod without the node that a scheduler chose: an author's choice would bypass it."""
    spec = mapping(pod, "spec")
    if "nodeName" not in spec or "uid" not in mapping(pod, "metadata"):
        return pod
    return {**pod, "spec": {key: spec[key] for key in spec if key != "nodeName"}}


def _profiles_of(record: object) -> list[str]:
    """The profiles that a record names, in order of names; a record may hold anything."""
    try:
        entries = orjson.loads(record) if isinstance(record, str) else ()
    except orjson.JSONDecodeError:
        return []
    listed = entries if isinstance(entries, list) else ()
    named = {entry.get("profile") for entry in listed if isinstance(entry, dict)}
    return sorted(name for name in named if isinstance(name, str))


def _unexplained(pod: dict[str, Any], record: object) -> Iterator[str]:
    """Containers whose shares are not the ones that the record says we gave."""
    recorded = read_record(record)
    for container in containers_of(pod):
        limits = mapping(mapping(container.raw, "resources"), "limits")
        held = [key for key in limits if is_gpu_key(key)]
        claim = recorded.get(container.name)
        if held and (claim is None or claim.resource not in held):
            yield (
                f"{container.label} holds {', '.join(sorted(held))}, which its record does not "
                "explain: taken as what was asked for"
            )


def _without_placement(
    spec: Mapping[str, Any], profile: SharingProfile
) -> tuple[dict[str, Any], list[str]]:
    """A spec without what a profile writes, and the names of what was taken off."""
    kept, taken = dict(spec), []
    selector = mapping(spec, "nodeSelector")
    ours = {key for key, value in profile.node_selector if selector.get(key) == value}
    if ours:
        kept["nodeSelector"] = {key: selector[key] for key in selector if key not in ours}
        taken += [f"nodeSelector {key}" for key in sorted(ours)]
    tolerations = spec.get("tolerations")
    listed = tolerations if isinstance(tolerations, list) else []
    others = [one for one in listed if one not in profile.tolerations]
    if len(others) < len(listed):
        kept["tolerations"] = others
        taken.append("tolerations")
    for field, said in _PLAIN.items():
        own = getattr(profile.spec, said)
        if own is not None and spec.get(field) == own:
            del kept[field]
            taken.append(field)
    return kept, taken
