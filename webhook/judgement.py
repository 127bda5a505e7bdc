"""Judgement: what becomes of one pod, or of the pods of one template, under what governs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from sharing.api.choices import Enforcement
from sharing.api.profile import SharingProfile
from sharing.errors import GpuSharingError
from sharing.inventory import Inventory
from sharing.names import GRANTS_ANNOTATION, MILLI_GPU
from webhook import explain, placement, rewrite
from webhook.container import Container, mapping
from webhook.decision import Decided, decide
from webhook.errors import PolicyError, RequestError
from webhook.foreign import vocabulary_of
from webhook.grant import Recorded, read_record, render_grants
from webhook.guard import check_pod
from webhook.keys import is_status, our_keys
from webhook.lines import bounded
from webhook.nearmiss import near_labels
from webhook.openings import check_openings
from webhook.patch import PatchOperation
from webhook.policies import Governing
from webhook.request import PodRequest, read_request
from webhook.shape import check_shape
from webhook.verdict import ALLOWED, Verdict
from webhook.where import where_of

_LONGEST_FIELD: Final = 600
"""Characters that a refusal says of a field: a container's name, its path and a key fit in."""
_LONGEST_MESSAGE: Final = 4096
"""Characters of a refusal, apart from the pod's name; those that a person causes have a tenth."""


def judge(
    pod: dict[str, Any], subject: str, governing: Governing, inventory: Inventory | None
) -> Verdict:
    """The verdict under a policy; the subject is what messages begin with."""
    profile = governing.profile
    try:
        if profile is None:
            return _broken(pod, governing)
        verdict = _decide(pod, profile, inventory)
    except GpuSharingError as error:
        verdict = denied(error, subject)
    if profile is None or profile.spec.enforcement is Enforcement.ENFORCE:
        return verdict
    without = tuple(rewrite.annotate(pod, {}, _forged(pod)))
    return replace(unenforced(verdict, profile), operations=without)


def _forged(pod: dict[str, Any]) -> list[str]:
    """Status keys on a pod; nobody else writes them, whether a policy is in force or not."""
    annotations = mapping(mapping(pod, "metadata"), "annotations")
    return [key for key in our_keys(annotations) if is_status(key)] if annotations else []


def _broken(pod: dict[str, Any], governing: Governing) -> Verdict:
    """A label that leads nowhere must not let GPU pods through as if there were none."""
    try:
        asks = bool(read_request(pod).asks)
    except RequestError:
        asks = True
    if asks:
        raise PolicyError("", governing.broken)
    forged = _forged(pod)
    return Verdict(
        warnings=tuple(map(explain.removed, forged)),
        operations=tuple(rewrite.annotate(pod, {}, forged)),
    )


def _decide(pod: dict[str, Any], profile: SharingProfile, inventory: Inventory | None) -> Verdict:
    request = read_request(pod, vocabulary_of(profile.spec.compatibility))
    labels = mapping(mapping(pod, "metadata"), "labels")
    if labels and (near := near_labels(labels)):
        request = request._replace(near=(*request.near, *near))
    if not (request.concerns_us or profile.spec.hide_gpus):
        return ALLOWED
    check_shape(pod, request.containers)
    if not request.asks:
        return _without_share(pod, request, profile)
    check_pod(pod, request.containers, profile)
    spec = mapping(pod, "spec")
    decision = decide(request, profile, inventory, where_of(spec, profile.node_selector))
    operations: list[PatchOperation] = []
    warnings = list(decision.warnings)
    for one in decision.decided:
        warnings += _give(one, profile, request, operations)
    given = {one.ask.container.path for one in decision.decided}
    for container in request.containers:
        if container.path not in given:
            warnings += _withhold(container, profile, request, operations)
    if profile.places:
        operations += placement.place(spec, profile)
        warnings += map(explain.clipped, placement.overridden(spec, profile))
    memory = placement.memory_requirements(decision.decided)
    operations += placement.require(spec, memory, placement.outdated(_recorded(pod), memory))
    grants = tuple(one.grant for one in decision.decided)
    forged = [key for key in request.keys.status if key != GRANTS_ANNOTATION]
    operations += rewrite.annotate(pod, {GRANTS_ANNOTATION: render_grants(grants)}, forged)
    warnings += map(explain.removed, forged)
    warnings += map(explain.unused, request.unused)
    warnings += map(explain.meant, request.near)
    warnings += [explain.not_carried_over(*lost) for lost in request.lost]
    return Verdict(
        warnings=tuple(warnings),
        grants=grants,
        operations=tuple(operations),
        audit_annotations={
            "profile": profile.name,
            "grants": ", ".join(f"{g.container}={g.resource}" for g in grants),
        },
    )


def _recorded(pod: dict[str, Any]) -> Iterable[Recorded]:
    """What the pod's own record claims."""
    annotations = mapping(mapping(pod, "metadata"), "annotations")
    return read_record(annotations.get(GRANTS_ANNOTATION)).values()


def _give(
    one: Decided,
    profile: SharingProfile,
    request: PodRequest,
    operations: list[PatchOperation],
) -> Iterator[str]:
    """Write one container's share; the warnings that this is worth."""
    members = {one.grant.resource: str(one.grant.count)}
    if profile.spec.accounting:
        members[MILLI_GPU] = str(one.solved.milli)
    foreign = request.foreign.get(one.ask.container.path, ())
    resources = rewrite.give_share(one.ask.container, members, foreign)
    cleared, names = rewrite.clear_environment(one.ask.container)
    operations += resources
    operations += cleared
    if resources:
        yield explain.granted(one.grant)
    if names:
        yield explain.cleared(one.grant.container, names)


def _withhold(
    container: Container,
    profile: SharingProfile,
    request: PodRequest,
    operations: list[PatchOperation],
) -> Iterator[str]:
    """Write a container that has no share; the warnings that this is worth."""
    if profile.spec.hide_gpus or request.asks:
        # An explicit value beats whatever else the container's environment is made of.
        always = profile.spec.hide_gpus or rewrite.may_see_gpus(container)
        hidden = rewrite.hide_gpus(container, always=always)
        operations += hidden
        if hidden and not profile.spec.hide_gpus:
            yield explain.hidden(container.name)
    if container in request.counting:
        operations += rewrite.drop(container, [MILLI_GPU])
        yield explain.removed(MILLI_GPU)
    operations += rewrite.drop(container, request.foreign.get(container.path, ()))


def _without_share(pod: dict[str, Any], request: PodRequest, profile: SharingProfile) -> Verdict:
    """A pod that asks for no GPU: hidden GPUs where the profile says so, and no keys of ours."""
    operations: list[PatchOperation] = []
    warnings: list[str] = []
    if profile.spec.hide_gpus:
        check_openings(pod, request.containers)
    for container in request.containers:
        warnings += _withhold(container, profile, request, operations)
    operations += rewrite.annotate(pod, {}, request.keys.status)
    warnings += map(explain.removed, request.keys.status)
    warnings += map(explain.unused, request.unused)
    warnings += map(explain.meant, request.near)
    return Verdict(warnings=tuple(warnings), operations=tuple(operations))


def denied(error: GpuSharingError, subject: str) -> Verdict:
    """The refusal that an error means: 422 for what means nothing, 403 for what is forbidden."""
    malformed = isinstance(error, RequestError)
    error.subject = bounded(error.subject, _LONGEST_FIELD)
    return Verdict(
        code=422 if malformed else 403,
        reason="Invalid" if malformed else "Forbidden",
        message=f"{subject}: {bounded(str(error), _LONGEST_MESSAGE)}",
        summary=error.wrong,
        audit_annotations={"denied": error.subject},
    )


def unenforced(verdict: Verdict, profile: SharingProfile) -> Verdict:
    """Warn and audit change nothing, and say what would have been."""
    would = verdict.kind.value
    annotations = {**verdict.audit_annotations, "profile": profile.name, "would": would}
    if verdict.message:
        annotations["message"] = verdict.message
    warnings: tuple[str, ...] = ()
    if profile.spec.enforcement is Enforcement.WARN:
        denial = [f"would be denied: {verdict.summary}"] if verdict.message else []
        changes = [f"would be: {warning}" for warning in verdict.warnings]
        warnings = tuple(map(explain.clipped, denial + changes))
    return Verdict(warnings=warnings, grants=verdict.grants, audit_annotations=annotations)
