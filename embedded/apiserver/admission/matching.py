"""Whether a webhook or policy is about a request (pure).

Rules: k8s.io/apiserver ``pkg/admission/plugin/webhook/predicates`` and ``matchconditions``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from embedded.apiserver import cel
from embedded.apiserver.admission.attributes import Attributes, Operation
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json, entries, labels_of
from embedded.apiserver.selectors import labels_from_object

_CONFIGURATIONS: Final = frozenset(
    f"{plural}.admissionregistration.k8s.io"
    for plural in (
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    )
)


class Match(Enum):
    """What match conditions say."""

    CALL = "call"
    SKIP = "skip"
    FAILED = "failed"


def is_exempt(kind: ResourceKind) -> bool:
    """Configurations of admission itself are never sent to admission webhooks."""
    return kind.qualified in _CONFIGURATIONS


def matched_resource(
    rules: Iterable[Json], attributes: Attributes, versions: Iterable[ResourceKind], policy: str
) -> ResourceKind | None:
    """The resource under which rules take a request, or nothing.

    Args:
        rules: Rules with operations.
        attributes: The request.
        versions: All served versions of the request's resource.
        policy: ``matchPolicy``; Equivalent also looks at the other versions.
    """
    listed = list(rules)
    if any(_rule_takes(rule, attributes, attributes.kind) for rule in listed):
        return attributes.kind
    if policy != "Equivalent":
        return None
    for other in versions:
        if any(_rule_takes(rule, attributes, other) for rule in listed):
            return other
    return None


def _rule_takes(rule: Json, attributes: Attributes, kind: ResourceKind) -> bool:
    return (
        _holds(rule.get("operations"), attributes.operation.value)
        and _holds(rule.get("apiGroups"), kind.group)
        and _holds(rule.get("apiVersions"), kind.version)
        and _scope_takes(str(rule.get("scope") or "*"), attributes)
        and any(
            _resource_takes(str(text), kind.plural, attributes.subresource)
            for text in rule.get("resources") or ()
        )
    )


def _holds(allowed: Any, value: str) -> bool:
    return isinstance(allowed, list) and ("*" in allowed or value in allowed)


def _scope_takes(scope: str, attributes: Attributes) -> bool:
    cluster = attributes.kind.qualified == "namespaces" or not attributes.namespace
    return scope in {"*", "Cluster" if cluster else "Namespaced"}


def _resource_takes(rule: str, plural: str, subresource: str) -> bool:
    wanted, _, wanted_sub = rule.partition("/")
    return wanted in {"*", plural} and wanted_sub in {"*", subresource}


def namespace_takes(
    selector: Json | None, attributes: Attributes, labels: Mapping[str, str]
) -> bool:
    """The namespace selector; cluster-scoped objects always pass.

    Args:
        selector: ``namespaceSelector``.
        attributes: The request.
        labels: Labels of the request's namespace as stored.
    """
    if not selector:
        return True
    if attributes.kind.qualified == "namespaces":
        changed = attributes.operation in {Operation.CREATE, Operation.UPDATE}
        own = attributes.obj if changed and not attributes.subresource else attributes.old
        return labels_from_object(selector).matches(labels_of(own))
    if not attributes.namespace:
        return True
    return labels_from_object(selector).matches(labels)


def object_takes(selector: Json | None, attributes: Attributes) -> bool:
    """The object selector; the old or the new object may match."""
    if not selector:
        return True
    parsed = labels_from_object(selector)
    return any(
        obj is not None and parsed.matches(labels_of(obj))
        for obj in (attributes.obj, attributes.old)
    )


def conditions_say(conditions: Iterable[Json], variables: Mapping[str, Any]) -> tuple[Match, str]:
    """What match conditions say, and the first error.

    One false is enough to skip, whatever the others do; else one error fails; else call.
    """
    problem = ""
    for condition in conditions:
        try:
            value = cel.evaluate(str(condition.get("expression")), variables)
        except cel.CelError as error:
            problem = problem or f"{condition.get('name')}: {error.wrong}"
            continue
        if value is False:
            return Match.SKIP, ""
        if value is not True:
            problem = problem or f"{condition.get('name')}: must evaluate to bool"
    return (Match.FAILED, problem) if problem else (Match.CALL, "")


def webhooks_of(configurations: Iterable[Json]) -> list[tuple[Json, Json]]:
    """(configuration, webhook) pairs in the order of calling: by name, then as listed."""
    ordered = sorted(configurations, key=lambda found: str(found["metadata"]["name"]))
    return [(found, webhook) for found in ordered for webhook in entries(found, "webhooks")]
