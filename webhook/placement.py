"""The patch's part about where a pod may run. Nothing that its author set is overwritten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sharing.api.profile import SharingProfile
from webhook.container import mapping
from webhook.decision import Decided
from webhook.foreign import vocabulary_of
from webhook.patch import PatchOperation, add, escape, set_members

_DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The API server fills it in, so it is nobody's choice (HAMi#1162)."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_AFFINITY: Final = "/spec/affinity"


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
    least: dict[str, int] = {}
    for one in decided:
        if one.solved.least_memory_mib is not None:
            label = one.grant.share_class.memory_label
            least[label] = max(one.solved.least_memory_mib, least.get(label, 0))
    return [
        {"key": label, "operator": "Gt", "values": [str(mib - 1)]}
        for label, mib in sorted(least.items())
    ]


def require(
    spec: Mapping[str, Any], requirements: list[dict[str, Any]]
) -> Iterable[PatchOperation]:
    """Add requirements to a pod's node affinity: terms are ORed, so each term gets all of them."""
    if not requirements:
        return
    affinity = spec.get("affinity")
    if not isinstance(affinity, dict):
        yield add(_AFFINITY, {"nodeAffinity": {_REQUIRED: _one_term(requirements)}})
        return
    node = affinity.get("nodeAffinity")
    if not isinstance(node, dict):
        yield add(f"{_AFFINITY}/nodeAffinity", {_REQUIRED: _one_term(requirements)})
        return
    required = node.get(_REQUIRED)
    path = f"{_AFFINITY}/nodeAffinity/{escape(_REQUIRED)}"
    if not isinstance(required, dict):
        yield add(path, _one_term(requirements))
        return
    terms = required.get("nodeSelectorTerms")
    for index, term in enumerate(terms if isinstance(terms, list) else ()):
        if isinstance(term, dict):
            yield from _extend(f"{path}/nodeSelectorTerms/{index}", term, requirements)


def _one_term(requirements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": requirements}]}


def _extend(
    path: str, term: Mapping[str, Any], requirements: list[dict[str, Any]]
) -> Iterable[PatchOperation]:
    expressions = term.get("matchExpressions")
    if not expressions and not term.get("matchFields"):
        # An empty term matches no node; with a requirement it would match some.
        return
    if not isinstance(expressions, list):
        yield add(f"{path}/matchExpressions", requirements)
        return
    for requirement in requirements:
        if requirement not in expressions:
            yield add(f"{path}/matchExpressions/-", requirement)
