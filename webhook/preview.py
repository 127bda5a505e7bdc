"""What would become of an object of a manifest, decided by ``admit_pod`` as on the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sharing.documents import KubeObject
from webhook import explain
from webhook.admission import admit_pod
from webhook.astray import keys_astray
from webhook.grant import Grant
from webhook.patch import PatchOperation
from webhook.policies import Governing
from webhook.snapshot import Snapshot
from webhook.templates import PodTemplate, templates_of
from webhook.verdict import Verdict, VerdictKind


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPod:
    """One of the pods that an object makes, with its verdict."""

    pod: dict[str, Any]
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The verdict on an object: on the pod that it is, or on all pods that it makes."""

    found: KubeObject
    namespace: str
    code: int
    message: str
    warnings: tuple[str, ...]
    grants: tuple[Grant, ...]
    operations: tuple[PatchOperation, ...]
    """On the object itself; a template is changed as its pods would be."""
    pods: tuple[JudgedPod, ...]

    @property
    def kind(self) -> VerdictKind:
        """Allow, patch or deny."""
        if self.code >= 400:  # noqa: PLR2004 - HTTP's own border
            return VerdictKind.DENY
        return VerdictKind.PATCH if self.operations else VerdictKind.ALLOW


def preview(found: KubeObject, namespace: str, snapshot: Snapshot) -> Preview | None:
    """The verdict on an object; None for one that makes no pods.

    Args:
        found: The object.
        namespace: Where it would be created.
        snapshot: Policies and nodes.

    Raises:
        InputError: The object is of a kind that makes pods, and has no pod template.
    """
    templates = templates_of(found)
    if not templates:
        return None
    pods = tuple(_judged(_canonical(template.pod), namespace, snapshot) for template in templates)
    verdicts = [judged.verdict for judged in pods]
    denials = [verdict for verdict in verdicts if not verdict.allowed]
    pairs = zip(templates, verdicts, strict=True)
    operations = [o for template, verdict in pairs for o in template.relocate(verdict.operations)]
    return Preview(
        found=found,
        namespace=namespace,
        code=max((denial.code for denial in denials), default=200),
        message="; ".join(_unique(denial.message for denial in denials)),
        warnings=_unique(
            (
                *_astray(found, templates, snapshot.policies.profile_for(namespace)),
                *(warning for verdict in verdicts for warning in verdict.warnings),
            )
        ),
        grants=() if denials else _grants(verdicts),
        operations=() if denials else tuple(operations),
        pods=pods,
    )


def _astray(
    found: KubeObject, templates: Iterable[PodTemplate], governing: Governing
) -> Iterable[str]:
    """Warnings about the object itself, apart from its pods."""
    if governing.untouched:
        return ()
    pods = {template.pointer: template.pod for template in templates}
    return map(explain.misplaced, keys_astray(found.value, pods))


def _judged(pod: dict[str, Any], namespace: str, snapshot: Snapshot) -> JudgedPod:
    verdict = admit_pod(pod, namespace, snapshot.policies, snapshot.inventory)
    return JudgedPod(pod=pod, verdict=verdict)


def _grants(verdicts: Iterable[Verdict]) -> tuple[Grant, ...]:
    return tuple(grant for verdict in verdicts for grant in verdict.grants)


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _canonical(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with fractional and null quantities as texts, as the API server hands them on.

    ``nvidia.com/gpu: 0.25`` without quotes is a number in YAML, and legal: the API server reads a
    quantity from a number's digits, and nothing as 0.

    Source: kubernetes/apimachinery, ``resource.Quantity.UnmarshalJSON``.
    """
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    changed = {
        key: [_canonical_container(container) for container in containers]
        for key, containers in spec.items()
        if key in ("containers", "initContainers") and isinstance(containers, list)
    }
    return {**pod, "spec": {**spec, **changed}}


def _canonical_container(container: Any) -> Any:
    resources = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(resources, dict):
        return container
    changed = {
        part: {name: _text(quantity) for name, quantity in resources[part].items()}
        for part in ("limits", "requests")
        if isinstance(resources.get(part), dict) and _has_odd(resources[part])
    }
    return {**container, "resources": {**resources, **changed}} if changed else container


def _has_odd(quantities: Mapping[str, Any]) -> bool:
    return any(quantity is None or isinstance(quantity, float) for quantity in quantities.values())


def _text(quantity: Any) -> Any:
    if quantity is None:
        return "0"
    if isinstance(quantity, float):
        return format(quantity, ".9f").rstrip("0").rstrip(".")
    return quantity
