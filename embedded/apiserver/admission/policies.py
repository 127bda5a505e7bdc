"""ValidatingAdmissionPolicy: rules in CEL, evaluated inside the server (pure over the store).

Rules: k8s.io/apiserver ``plugin/policy/validating``. Parameters (``paramKind``), the
``authorizer`` variable and audit annotations are not evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from embedded.apiserver import cel
from embedded.apiserver.admission.attributes import Attributes
from embedded.apiserver.admission.matching import (
    Match,
    conditions_say,
    is_exempt,
    matched_resource,
    namespace_takes,
    object_takes,
)
from embedded.apiserver.admission.plugins import namespace_labels
from embedded.apiserver.admission.reviews import request_fields
from embedded.apiserver.kinds import KindTable, ResourceKind
from embedded.apiserver.objects import Json, entries, name_of, section
from embedded.apiserver.status import StatusError
from embedded.apiserver.store import Store

_POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
_BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
_CODES = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}


class Policies:
    """The validating admission policies of a cluster.

    Args:
        store: Where policies, bindings and namespaces are read.
        kinds: The resources that there are.
    """

    def __init__(self, store: Store, kinds: KindTable) -> None:
        self._store = store
        self._kinds = kinds

    def validate(self, attributes: Attributes) -> None:
        """Evaluate the policies that are about a request.

        Raises:
            StatusError: A policy denies, or fails under failurePolicy Fail.
        """
        bindings = self._store.objects(_BINDINGS)
        if not bindings or is_exempt(attributes.kind):
            return
        for policy in self._store.objects(_POLICIES):
            bound = [
                binding
                for binding in bindings
                if section(binding, "spec").get("policyName") == name_of(policy)
                and self._takes(section(binding, "spec", "matchResources"), attributes, bound=True)
            ]
            constraints = section(policy, "spec", "matchConstraints")
            if bound and self._takes(constraints, attributes, bound=False):
                self._apply(policy, bound, attributes)

    def _takes(self, match: Json, attributes: Attributes, *, bound: bool) -> bool:
        if not match:
            return bound
        versions = [kind for kind in self._kinds if kind.qualified == attributes.kind.qualified]
        policy = str(match.get("matchPolicy") or "Equivalent")
        rules = entries(match, "resourceRules")
        if rules and not _rules_take(rules, attributes, versions, policy):
            return False
        excluded = entries(match, "excludeResourceRules")
        if excluded and _rules_take(excluded, attributes, versions, policy):
            return False
        labels = namespace_labels(self._store, attributes.namespace)
        return namespace_takes(match.get("namespaceSelector"), attributes, labels) and object_takes(
            match.get("objectSelector"), attributes
        )

    def _apply(self, policy: Json, bindings: list[Json], attributes: Attributes) -> None:
        spec = section(policy, "spec")
        namespace = self._store.get("namespaces", "", attributes.namespace)
        values: dict[str, Any] = {
            "object": attributes.obj,
            "oldObject": attributes.old,
            "request": request_fields(attributes),
            "namespaceObject": namespace,
            "variables": {},
        }
        # Seen on Kubernetes 1.37.2: match conditions are not given the namespace.
        matching = values | {"namespaceObject": None}
        said, problem = conditions_say(entries(spec, "matchConditions"), matching)
        if said is Match.SKIP:
            return
        fails = spec.get("failurePolicy") != "Ignore"
        failures = [("Invalid", problem)] if said is Match.FAILED and fails else []
        if said is Match.CALL:
            failures = list(_failures(spec, values, fails=fails))
        for binding in bindings:
            for reason, message in failures:
                _act(policy, binding, attributes, reason=reason, message=message)


def _rules_take(
    rules: list[Json], attributes: Attributes, versions: Iterable[ResourceKind], policy: str
) -> bool:
    own = name_of(attributes.obj or attributes.old or {}) or attributes.name
    named = [r for r in rules if not r.get("resourceNames") or own in r["resourceNames"]]
    return matched_resource(named, attributes, versions, policy) is not None


def _failures(spec: Json, values: dict[str, Any], *, fails: bool) -> Iterable[tuple[str, str]]:
    """(reason, message) of each validation that does not hold."""
    problem = _fill_variables(spec, values)
    for validation in entries(spec, "validations"):
        expression = str(validation.get("expression"))
        try:
            if cel.evaluate(expression, values) is True:
                continue
            text = _message(validation, expression, values)
        except cel.CelError as error:
            if fails:
                yield (
                    "Invalid",
                    f"expression '{expression}' resulted in error: {problem or error.wrong}",
                )
            continue
        yield str(validation.get("reason") or "Invalid"), text


def _fill_variables(spec: Json, values: dict[str, Any]) -> str:
    """Evaluate the policy's variables in order; the first problem, for messages.

    A variable that fails is left out, so whatever uses it fails too, and nothing else does.
    """
    problem = ""
    for variable in entries(spec, "variables"):
        try:
            value = cel.evaluate(str(variable.get("expression")), values)
        except cel.CelError as error:
            problem = (
                problem or f"composited variable {variable.get('name')!r} fails: {error.wrong}"
            )
            continue
        values["variables"] = {**values["variables"], str(variable.get("name")): value}
    return problem


def _message(validation: Json, expression: str, values: dict[str, Any]) -> str:
    computed = validation.get("messageExpression")
    if computed:
        try:
            text = cel.evaluate(str(computed), values)
        except cel.CelError:
            text = ""  # upstream falls back to the fixed message as well
        if isinstance(text, str) and text.strip():
            return text
    return str(validation.get("message") or f"failed expression: {expression}")


def _act(policy: Json, binding: Json, attributes: Attributes, *, reason: str, message: str) -> None:
    actions = section(binding, "spec").get("validationActions") or []
    told = (
        f"ValidatingAdmissionPolicy '{name_of(policy)}' with binding '{name_of(binding)}' denied "
        f"request: {message}"
    )
    if "Audit" in actions:
        key = "validation.policy.admission.k8s.io/validation_failure"
        attributes.call.annotations[key] = told
    if "Warn" in actions:
        attributes.call.warn(
            f"Validation failed for ValidatingAdmissionPolicy '{name_of(policy)}' with binding "
            f"'{name_of(binding)}': {message}"
        )
    if "Deny" in actions:
        kind = attributes.kind
        shown = attributes.name or name_of(attributes.obj or {})
        raise StatusError(
            _CODES.get(reason, 422),
            reason,
            f'{kind.qualified} "{shown}" is forbidden: {told}',
            details={"name": shown, "kind": kind.plural, "causes": [{"message": told}]},
        )
