"""The patch's part about where a pod may run. Nothing that its author set is overwritten."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sharing.api.profile import SharingProfile
from sharing.errors import InputError
from sharing.shareclass import ShareClass
from webhook.container import mapping
from webhook.decision import Decided
from webhook.foreign import vocabulary_of
from webhook.grant import Recorded
from webhook.patch import PatchOperation, add, remove, replace, set_members
from webhook.resources import class_named

_DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The API server fills it in, so it is nobody's choice (HAMi#1162)."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_AFFINITY: Final = "/spec/affinity"
_NODE_AFFINITY: Final = f"{_AFFINITY}/nodeAffinity/{_REQUIRED}"


def place(spec: Mapping[str, Any], profile: SharingProfile) -> Iterable[PatchOperation]:
    """The profile's selector, tolerations, scheduler and runtime class."""
    selector = mapping(spec, "nodeSelector")
    missing = {key: value for key, value in profile.node_selector if key not in selector}
    yield from set_members("/spec/nodeSelector", spec.get("nodeSelector"), missing)
    yield from _tolerate(spec.get("tolerations"), profile)
    scheduler, wanted = spec.get("schedulerName"), profile.spec.scheduler_name
    if scheduler in _replaced(profile):
        wanted = wanted or _DEFAULT_SCHEDULER
    if wanted and wanted != scheduler and _is_unset(scheduler, profile):
        yield add("/spec/schedulerName", wanted)
    if profile.spec.runtime_class_name and spec.get("runtimeClassName") in (None, ""):
        yield add("/spec/runtimeClassName", profile.spec.runtime_class_name)


def overridden(spec: Mapping[str, Any], profile: SharingProfile) -> Iterable[str]:
    """Where the pod says otherwise than the profile, and keeps its own."""
    selector = spec.get("nodeSelector")
    for key, value in profile.node_selector:
        if isinstance(selector, dict) and key in selector and selector[key] != value:
            yield f"nodeSelector {key}: the pod's own stands, profile {profile.name} says {value}"
    for field, wanted in (
        ("schedulerName", profile.spec.scheduler_name),
        ("runtimeClassName", profile.spec.runtime_class_name),
    ):
        own = spec.get(field)
        if wanted and own != wanted and not _is_unset(own, profile):
            yield f"{field}: the pod's own stands, profile {profile.name} says {wanted}"
    scheduler = spec.get("schedulerName")
    if scheduler in _replaced(profile) and scheduler != profile.spec.scheduler_name:
        instead = profile.spec.scheduler_name or _DEFAULT_SCHEDULER
        yield f"schedulerName: {scheduler} becomes {instead} (compatibility of {profile.name})"


def _replaced(profile: SharingProfile) -> frozenset[str]:
    """Schedulers of the systems that the profile moves over from."""
    return vocabulary_of(profile.spec.compatibility).schedulers


def _is_unset(value: object, profile: SharingProfile) -> bool:
    return value in (None, "", _DEFAULT_SCHEDULER) or value in _replaced(profile)


def _tolerate(current: object, profile: SharingProfile) -> Iterable[PatchOperation]:
    if not profile.tolerations:
        return
    if not isinstance(current, list):
        yield add("/spec/tolerations", [dict(one) for one in profile.tolerations])
        return
    for toleration in profile.tolerations:
        if toleration not in current:
            yield add("/spec/tolerations/-", dict(toleration))


def memory_requirements(decided: Iterable[Decided]) -> list[dict[str, Any]]:
    """Node affinity for asks by memory: nodes whose shares of the class have enough of it.

    ``Gt`` compares integers, strictly. Source: Kubernetes API, NodeSelectorRequirement.
    """
    return _requirements((one.grant.share_class, one.grant.least_memory_mib) for one in decided)


def outdated(record: Iterable[Recorded], wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Requirements that an earlier pass wrote, by the pod's own record, and that no longer hold.

    A pod comes back from a backup, or from another namespace, and gets a share of another class.
    """
    written = []
    for claim in record:
        with contextlib.suppress(InputError):
            written.append((class_named(claim.resource), claim.least_memory_mib))
    return [one for one in _requirements(written) if one not in wanted]


def _requirements(least: Iterable[tuple[ShareClass | None, int | None]]) -> list[dict[str, Any]]:
    most: dict[str, int] = {}
    for share_class, mib in least:
        if share_class is not None and mib is not None:
            label = share_class.memory_label
            most[label] = max(mib, most.get(label, 0))
    return [
        {"key": label, "operator": "Gt", "values": [str(mib - 1)]}
        for label, mib in sorted(most.items())
    ]


def require(
    spec: Mapping[str, Any],
    requirements: list[dict[str, Any]],
    before: list[dict[str, Any]],
) -> Iterable[PatchOperation]:
    """Add requirements to a pod's node affinity: terms are ORed, so each term gets all of them.

    Args:
        spec: The pod's.
        requirements: What has to be there.
        before: What is taken off, if it is there.
    """
    if not (requirements or before):
        return
    affinity = spec.get("affinity")
    node = affinity.get("nodeAffinity") if isinstance(affinity, dict) else None
    required = node.get(_REQUIRED) if isinstance(node, dict) else None
    if isinstance(required, dict):
        yield from _amend(required, requirements, before)
    elif not requirements:
        return
    elif isinstance(node, dict):
        yield add(_NODE_AFFINITY, _one_term(requirements))
    elif isinstance(affinity, dict):
        yield add(f"{_AFFINITY}/nodeAffinity", {_REQUIRED: _one_term(requirements)})
    else:
        yield add(_AFFINITY, {"nodeAffinity": {_REQUIRED: _one_term(requirements)}})


def _amend(
    required: Mapping[str, Any],
    requirements: list[dict[str, Any]],
    before: list[dict[str, Any]],
) -> Iterable[PatchOperation]:
    listed = required.get("nodeSelectorTerms")
    terms = [term for term in listed if isinstance(term, dict)] if isinstance(listed, list) else []
    if not requirements and any(_holds_only(term, before) for term in terms):
        # Without what we wrote that term lets the pod run anywhere.
        yield remove(_NODE_AFFINITY)
        return
    for index, term in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(term, dict):
            path = f"{_NODE_AFFINITY}/nodeSelectorTerms/{index}"
            yield from _extend(path, term, requirements, before)


def _holds_only(term: Mapping[str, Any], before: list[dict[str, Any]]) -> bool:
    expressions = term.get("matchExpressions")
    ours = isinstance(expressions, list) and all(one in before for one in expressions)
    return bool(expressions) and ours and not term.get("matchFields")


def _one_term(requirements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": requirements}]}


def _extend(
    path: str,
    term: Mapping[str, Any],
    requirements: list[dict[str, Any]],
    before: list[dict[str, Any]],
) -> Iterable[PatchOperation]:
    expressions = term.get("matchExpressions")
    if not expressions and not term.get("matchFields"):
        # An empty term matches no node; with a requirement it would match some.
        return
    if not isinstance(expressions, list):
        if requirements:
            yield add(f"{path}/matchExpressions", requirements)
        return
    places = [place for place, one in enumerate(expressions) if one in before]
    missing = [one for one in requirements if one not in expressions]
    for place, one in zip(places, missing, strict=False):
        yield replace(f"{path}/matchExpressions/{place}", one)
    for one in missing[len(places) :]:
        yield add(f"{path}/matchExpressions/-", one)
    for place in reversed(places[len(missing) :]):
        yield remove(f"{path}/matchExpressions/{place}")
