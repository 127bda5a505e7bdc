"""Admission: a review in, a verdict out. Awaits nothing, reads no clock, never raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from sharing.api.choices import Enforcement
from sharing.inventory import Inventory
from sharing.names import GRANTS_ANNOTATION
from webhook import explain, rewrite
from webhook.container import containers_of, mapping
from webhook.errors import PolicyError
from webhook.grant import Grant
from webhook.guard import check_debug_containers
from webhook.judgement import denied, judge, unenforced
from webhook.keys import is_status, our_keys
from webhook.lines import bounded
from webhook.policies import Governing, Policies
from webhook.resources import shares_named
from webhook.review import Review
from webhook.verdict import ALLOWED, Verdict
from webhook.workload import Legalised, legalise, templates_of

_MOST_JUDGED: Final = 64
"""Templates of one workload that are previewed."""
_MOST_CONTAINERS: Final = 1024
"""Their containers in all."""
_LONGEST_NAME: Final = 253
"""Characters of a name that Kubernetes takes."""
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
    if is_new_pod(review):
        return admit_pod(review.object, review.namespace, policies, inventory)
    if review.kind == "Pod":
        if review.subresource == "ephemeralcontainers":
            return _debug(review, policies.profile_for(review.namespace))
        # A pod that exists is not ours to change: its spec is fixed, and a refusal would block
        # finalizers and deletion (gatekeeper#4121). Policies guard our keys.
        return ALLOWED
    if review.operation in ("CREATE", "UPDATE") and not review.subresource:
        before = review.old_object
        return admit_workload(review.object, review.namespace, policies, inventory, before=before)
    return ALLOWED


def is_new_pod(review: Review) -> bool:
    """Whether a pod is about to be created, by somebody else than the kubelet."""
    created = review.kind == "Pod" and review.operation == "CREATE" and not review.subresource
    return created and review.object is not None and _NODES not in review.groups


def admit_pod(
    pod: dict[str, Any], namespace: str, policies: Policies, inventory: Inventory | None
) -> Verdict:
    """The verdict on a pod that is about to be created in a namespace."""
    governing, subject = policies.profile_for(namespace), subject_of(pod, namespace)
    return admit_new(pod, namespace, governing, inventory, subject=subject)


def admit_new(
    pod: dict[str, Any],
    namespace: str,
    governing: Governing,
    inventory: Inventory | None,
    *,
    subject: str,
) -> Verdict:
    """The same, with what governs the namespace looked up and the pod's name told apart."""
    if governing.untouched:
        return _ungoverned(pod, namespace)
    return judge(pod, subject, governing, inventory)


def subject_of(pod: Mapping[str, Any], namespace: str) -> str:
    """What messages call a pod."""
    return f"pod {namespace}/{_name(pod)}"


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
    if not templates:
        return ALLOWED
    governing = policies.profile_for(namespace)
    if governing.untouched:
        found = (_ungoverned(one.raw, namespace).warnings for one in templates[:_MOST_JUDGED])
        return Verdict(warnings=tuple(dict.fromkeys(chain.from_iterable(found))))
    profile = governing.profile
    enforced = profile is not None and profile.spec.enforcement is Enforcement.ENFORCE
    subject = f"{workload['kind']} {namespace}/{_name(workload)}"
    stored = legalise(workload, templates, rewrites=enforced)
    subjects = (f"{subject}: {one.field}" if len(templates) > 1 else subject for one in templates)
    judged = [
        judge(raw, called, governing, inventory)
        for called, raw in zip(subjects, _judgeable(stored.templates), strict=False)
    ]
    if profile is not None and profile.spec.workloads == "deny" and not _is_anothers(workload):
        old = [one.raw for one in templates_of(before or {}, policies.template_paths)]
        for given, legal, verdict in zip(templates, stored.templates, judged, strict=False):
            # A file that is applied again holds fractions where the object holds what we wrote.
            if not (verdict.allowed or given.raw in old or legal in old):
                return verdict
    return _previewed(stored, judged)


def _judgeable(templates: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The templates that are previewed: other reviews wait meanwhile."""
    left = _MOST_CONTAINERS
    for raw in templates[:_MOST_JUDGED]:
        left -= len(containers_of(raw))
        yield raw
        if left < 0:
            return


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
    shares = sorted({name for one in containers_of(pod) for name in shares_named(one)})
    if not (keys or shares):
        return ALLOWED
    forged = [key for key in keys if is_status(key)]
    unread = [key for key in keys if not is_status(key)]
    return Verdict(
        warnings=tuple(
            [explain.removed(key) for key in forged]
            + [explain.unread(key, namespace) for key in unread]
            + [explain.ungranted(name, namespace) for name in shares]
        ),
        operations=tuple(rewrite.annotate(pod, {}, forged)),
    )


def _debug(review: Review, governing: Governing) -> Verdict:
    """Debug containers get no share and must not open one."""
    profile, pod = governing.profile, review.object or {}
    if profile is None or not (profile.spec.hide_gpus or _has_share(pod)):
        return ALLOWED
    try:
        check_debug_containers(pod, review.old_object or {}, profile)
    except PolicyError as error:
        refusal = denied(error, subject_of(pod, review.namespace))
        if profile.spec.enforcement is Enforcement.ENFORCE:
            return refusal
        return unenforced(refusal, profile)
    return ALLOWED


def _has_share(pod: Mapping[str, Any]) -> bool:
    return GRANTS_ANNOTATION in mapping(mapping(pod, "metadata"), "annotations")


def _name(pod: Mapping[str, Any]) -> str:
    """The pod's name as a person finds it again: generated names have no end yet."""
    metadata = mapping(pod, "metadata")
    name, stem = metadata.get("name"), metadata.get("generateName")
    if isinstance(name, str) and name:
        return bounded(name, _LONGEST_NAME)
    if isinstance(stem, str) and stem:
        return f"{bounded(stem, _LONGEST_NAME)}*"
    return "(unnamed)"
