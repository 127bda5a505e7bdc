"""Admission: a review in, a verdict out. Awaits nothing, reads no clock, never raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from sharing.api.profile import Enforcement, SharingProfile
from sharing.errors import GpuSharingError
from sharing.inventory import Inventory
from sharing.names import GRANTS_ANNOTATION, MILLI_GPU
from webhook import explain, placement, rewrite
from webhook.container import Container, mapping
from webhook.decision import Decided, decide
from webhook.errors import PolicyError, RequestError
from webhook.foreign import vocabulary_of
from webhook.grant import Grant, render_grants
from webhook.guard import check_debug_containers, check_openings, check_pod
from webhook.keys import is_status, our_keys
from webhook.patch import PatchOperation
from webhook.policies import Governing, Policies
from webhook.request import PodRequest, read_request
from webhook.review import Review
from webhook.shape import check_shape
from webhook.verdict import ALLOWED, Verdict
from webhook.where import where_of
from webhook.workload import Legalised, keeps_templates, legalise, templates_of

_MOST_JUDGED: Final = 64
"""Templates of one workload that are previewed."""
_NODES: Final = "system:nodes"
"""Group of kubelets; their mirror pods are a fact, not a wish (kube-image-keeper#560)."""


def admit(review: Review, policies: Policies, inventory: Inventory | None) -> Verdict:
    """The verdict on a review.

    Args:
        review: The API server's question.
        policies: Namespaces and profiles.
        inventory: What ready nodes offer; an empty one means that no node offers anything, None
            that nothing is known about nodes (offline use).
    """
    if review.object is None or _NODES in review.groups:
        return ALLOWED
    if review.kind == "Pod":
        if review.subresource == "ephemeralcontainers":
            return _debug(review, policies.profile_for(review.namespace))
        if review.operation == "CREATE" and not review.subresource:
            return admit_pod(review.object, review.namespace, policies, inventory)
        # A pod that exists is not ours to change: its spec is fixed, and a refusal would block
        # finalizers and deletion (gatekeeper#4121). Policies guard our keys.
        return ALLOWED
    if review.operation in ("CREATE", "UPDATE") and not review.subresource:
        before = review.old_object
        return admit_workload(review.object, review.namespace, policies, inventory, before=before)
    return ALLOWED


def admit_pod(
    pod: dict[str, Any], namespace: str, policies: Policies, inventory: Inventory | None
) -> Verdict:
    """The verdict on a pod that is about to be created in a namespace."""
    governing = policies.profile_for(namespace)
    if governing.untouched:
        return _ungoverned(pod, namespace)
    return _judge(pod, f"pod {namespace}/{_name(pod)}", governing, inventory)


def admit_workload(
    workload: dict[str, Any],
    namespace: str,
    policies: Policies,
    inventory: Inventory | None,
    *,
    before: dict[str, Any] | None = None,
) -> Verdict:
    """The verdict on an object that holds pod templates: warnings, and fractions made legal.

    Its pods are judged when they are created; here their author is told early. It is refused only
    where its profile says so, and only for templates that it brings itself: an update of anything
    else, a workload that goes, and one that another made pass.

    Args:
        workload: The object.
        namespace: Where it is.
        policies: Namespaces and profiles.
        inventory: As for ``admit``.
        before: The object as it was, on UPDATE.
    """
    templates = templates_of(workload, policies.template_paths)
    governing = policies.profile_for(namespace) if templates else None
    if governing is None or governing.untouched:
        return ALLOWED
    profile = governing.profile
    enforced = profile is not None and profile.spec.enforcement is Enforcement.ENFORCE
    subject = f"{workload['kind']} {namespace}/{_name(workload)}"
    stored = legalise(workload, templates, rewrites=enforced)
    judged = [_judge(raw, subject, governing, inventory) for raw in stored.templates[:_MOST_JUDGED]]
    if profile is not None and profile.spec.workloads == "deny":
        denied = next((verdict for verdict in judged if not verdict.allowed), None)
        if denied and not (
            _is_anothers(workload) or keeps_templates(before, templates, policies.template_paths)
        ):
            return denied
    return _previewed(stored, judged)


def _is_anothers(workload: Mapping[str, Any]) -> bool:
    """Whether a controller made it, or it is being deleted."""
    metadata = mapping(workload, "metadata")
    owners = metadata.get("ownerReferences")
    listed = owners if isinstance(owners, list) else ()
    owned = any(isinstance(one, dict) and one.get("controller") is True for one in listed)
    return owned or bool(metadata.get("deletionTimestamp"))


def _previewed(stored: Legalised, judged: list[Verdict]) -> Verdict:
    warnings = list(stored.warnings)
    grants: list[Grant] = []
    annotations: dict[str, str] = {}
    for verdict in judged:
        if not verdict.allowed:
            warnings.append(explain.clipped(f"pods would be denied: {verdict.summary}"))
        warnings += verdict.warnings
        grants += verdict.grants
        annotations |= verdict.audit_annotations
    return Verdict(
        operations=stored.operations,
        warnings=tuple(dict.fromkeys(warnings)),
        grants=tuple(grants),
        audit_annotations=annotations,
    )


def _ungoverned(pod: dict[str, Any], namespace: str) -> Verdict:
    """No policy: nothing is changed, but nobody writes our status keys."""
    annotations = mapping(mapping(pod, "metadata"), "annotations")
    keys = our_keys(annotations) if annotations else []
    if not keys:
        return ALLOWED
    forged = [key for key in keys if is_status(key)]
    unread = [key for key in keys if not is_status(key)]
    return Verdict(
        warnings=tuple(
            [explain.removed(key) for key in forged]
            + [explain.unread(key, namespace) for key in unread]
        ),
        operations=tuple(rewrite.annotate(pod, {}, forged)),
    )


def _judge(
    pod: dict[str, Any], subject: str, governing: Governing, inventory: Inventory | None
) -> Verdict:
    """The verdict under a policy; the subject is what messages begin with."""
    profile = governing.profile
    try:
        if profile is None:
            return _broken(pod, governing)
        verdict = _decide(pod, profile, inventory)
    except GpuSharingError as error:
        verdict = _denied(error, subject)
    if profile is None or profile.spec.enforcement is Enforcement.ENFORCE:
        return verdict
    # Nobody else writes our status keys, whether the policy is enforced or not.
    annotations = mapping(mapping(pod, "metadata"), "annotations")
    forged = [key for key in our_keys(annotations) if is_status(key)] if annotations else []
    without = tuple(rewrite.annotate(pod, {}, forged)) if forged else ()
    return replace(_unenforced(verdict, profile), operations=without)


def _broken(pod: dict[str, Any], governing: Governing) -> Verdict:
    """A label that leads nowhere must not let GPU pods through as if there were none."""
    try:
        asks = bool(read_request(pod).asks)
    except RequestError:
        asks = True
    if asks:
        raise PolicyError("", governing.broken)
    return ALLOWED


def _decide(pod: dict[str, Any], profile: SharingProfile, inventory: Inventory | None) -> Verdict:
    request = read_request(pod, vocabulary_of(profile.spec.compatibility))
    idle = not (request.asks or request.keys.found or request.counting or request.foreign)
    if idle and not profile.spec.hide_gpus:
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
    operations += placement.require(spec, placement.memory_requirements(decision.decided))
    grants = tuple(one.grant for one in decision.decided)
    forged = [key for key in request.keys.status if key != GRANTS_ANNOTATION]
    operations += rewrite.annotate(pod, {GRANTS_ANNOTATION: render_grants(grants)}, forged)
    warnings += map(explain.removed, forged)
    warnings += map(explain.unused, request.unused)
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
        # An explicit value beats what envFrom brings, which nobody can see here.
        always = profile.spec.hide_gpus or bool(container.raw.get("envFrom"))
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
    return Verdict(warnings=tuple(warnings), operations=tuple(operations))


def _debug(review: Review, governing: Governing) -> Verdict:
    """Debug containers get no share and must not open one."""
    profile, pod = governing.profile, review.object or {}
    if profile is None or not (profile.spec.hide_gpus or _has_share(pod)):
        return ALLOWED
    try:
        check_debug_containers(pod, review.old_object or {}, profile)
    except PolicyError as error:
        denied = _denied(error, f"pod {review.namespace}/{_name(pod)}")
        if profile.spec.enforcement is Enforcement.ENFORCE:
            return denied
        return _unenforced(denied, profile)
    return ALLOWED


def _has_share(pod: Mapping[str, Any]) -> bool:
    return GRANTS_ANNOTATION in mapping(mapping(pod, "metadata"), "annotations")


def _denied(error: GpuSharingError, subject: str) -> Verdict:
    malformed = isinstance(error, RequestError)
    return Verdict(
        code=422 if malformed else 403,
        reason="Invalid" if malformed else "Forbidden",
        message=str(error.about(subject)),
        summary=error.wrong,
        audit_annotations={"denied": error.subject},
    )


def _unenforced(verdict: Verdict, profile: SharingProfile) -> Verdict:
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


def _name(pod: Mapping[str, Any]) -> str:
    """The pod's name as a person finds it again: generated names have no end yet."""
    metadata = mapping(pod, "metadata")
    name, stem = metadata.get("name"), metadata.get("generateName")
    if isinstance(name, str) and name:
        return name
    return f"{stem}*" if isinstance(stem, str) and stem else "(unnamed)"
