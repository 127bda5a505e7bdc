"""Rules for webhook configurations and admission policies (pure).

Source: ``pkg/apis/admissionregistration/validation/validation.go``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from embedded.apiserver import cel
from embedded.apiserver.metadata import is_subdomain
from embedded.apiserver.objects import Json, entries, section
from embedded.apiserver.status import (
    Cause,
    duplicate,
    invalid_value,
    not_supported,
    required,
)

_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SELECTORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
_MAX_CONDITIONS: Final = 64
_MAX_TIMEOUT_S: Final = 30
_NAME_LABELS: Final = 3
_ACTIONS: Final = ("Audit", "Deny", "Warn")


def webhook_causes(obj: Json) -> list[Cause]:
    """What is wrong with a webhook configuration."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, webhook in enumerate(entries(obj, "webhooks")):
        where = f"webhooks[{index}]"
        name = str(webhook.get("name") or "")
        if name in seen:
            causes.append(duplicate(f"{where}.name", name))
        seen.add(name)
        causes += _one_webhook(webhook, name, where)
    return causes


def _one_webhook(webhook: Json, name: str, where: str) -> list[Cause]:
    causes = []
    if not is_subdomain(name) or len(name.split(".")) < _NAME_LABELS:
        causes.append(
            invalid_value(
                f"{where}.name",
                name,
                "should be a domain with at least three segments separated by dots",
            )
        )
    side_effects = webhook.get("sideEffects")
    if side_effects is None:
        causes.append(
            required(f"{where}.sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}")
        )
    elif side_effects not in _SIDE_EFFECTS:
        causes.append(not_supported(f"{where}.sideEffects", side_effects, _SIDE_EFFECTS))
    versions = webhook.get("admissionReviewVersions") or []
    if not versions:
        causes.append(
            required(f"{where}.admissionReviewVersions", "must specify one of v1, v1beta1")
        )
    elif "v1" not in versions:
        causes.append(
            invalid_value(
                f"{where}.admissionReviewVersions",
                versions,
                "must include at least one of v1, v1beta1",
            )
        )
    timeout = webhook.get("timeoutSeconds")
    if not isinstance(timeout, int) or not 1 <= timeout <= _MAX_TIMEOUT_S:
        causes.append(
            invalid_value(
                f"{where}.timeoutSeconds",
                timeout,
                "the timeout value must be between 1 and 30 seconds",
            )
        )
    causes += _choice_causes(webhook, where)
    causes += _client_causes(section(webhook, "clientConfig"), f"{where}.clientConfig")
    causes += _rules_causes(entries(webhook, "rules"), f"{where}.rules")
    causes += _selector_causes(webhook, where)
    return causes + condition_causes(
        entries(webhook, "matchConditions"), f"{where}.matchConditions"
    )


def _selector_causes(webhook: Json, where: str) -> list[Cause]:
    return [
        invalid_value(
            f"{where}.{key}.matchExpressions[{index}].operator",
            each.get("operator"),
            "not a valid selector operator",
        )
        for key in ("namespaceSelector", "objectSelector")
        for index, each in enumerate(entries(webhook, key, "matchExpressions"))
        if each.get("operator") not in _SELECTORS
    ]


def _choice_causes(webhook: Json, where: str) -> list[Cause]:
    choices = {
        "failurePolicy": ("Fail", "Ignore"),
        "matchPolicy": ("Equivalent", "Exact"),
        "reinvocationPolicy": ("IfNeeded", "Never"),
    }
    return [
        not_supported(f"{where}.{key}", webhook[key], allowed)
        for key, allowed in choices.items()
        if key in webhook and webhook[key] not in allowed
    ]


def _client_causes(config: Json, where: str) -> list[Cause]:
    causes: list[Cause] = []
    has_url, has_service = "url" in config, "service" in config
    if has_url == has_service:
        causes.append(required(where, "exactly one of url or service is required"))
    if has_url:
        parts = urlsplit(str(config["url"]))
        if parts.scheme != "https":
            why = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
            causes.append(invalid_value(f"{where}.url", parts.scheme, why))
        if not parts.hostname:
            causes.append(invalid_value(f"{where}.url", config["url"], "host must be specified"))
        if parts.query or parts.fragment or parts.username:
            causes.append(
                invalid_value(
                    f"{where}.url",
                    config["url"],
                    "fragments, queries and user information are not permitted in the URL",
                )
            )
    causes += [
        required(f"{where}.service.name")  # upstream names this one for both
        for key in ("name", "namespace")
        if has_service and not section(config, "service").get(key)
    ]
    return causes


def _rules_causes(rules: Iterable[Json], where: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, rule in enumerate(rules):
        for key in ("operations", "apiGroups", "apiVersions", "resources"):
            values = rule.get(key)
            if not values:
                causes.append(required(f"{where}[{index}].{key}"))
            elif "*" in values and len(values) > 1 and key != "resources":
                causes.append(
                    invalid_value(
                        f"{where}[{index}].{key}",
                        values,
                        "if '*' is present, must not specify other values",
                    )
                )
        causes += [
            not_supported(f"{where}[{index}].operations[{number}]", operation, _OPERATIONS)
            for number, operation in enumerate(rule.get("operations") or ())
            if operation not in _OPERATIONS
        ]
        if rule.get("scope") not in {"*", "Cluster", "Namespaced"}:
            causes.append(
                not_supported(
                    f"{where}[{index}].scope", rule.get("scope"), ("*", "Cluster", "Namespaced")
                )
            )
    return causes


def condition_causes(conditions: list[Json], where: str) -> list[Cause]:
    """What is wrong with match conditions."""
    causes: list[Cause] = []
    if len(conditions) > _MAX_CONDITIONS:
        causes.append(
            Cause(
                field=where,
                reason="FieldValueTooMany",
                message=f"Too many: {len(conditions)}: must have at most {_MAX_CONDITIONS} items",
            )
        )
    seen: set[str] = set()
    for index, condition in enumerate(conditions[:_MAX_CONDITIONS]):
        name = str(condition.get("name") or "")
        if not name:
            causes.append(required(f"{where}[{index}].name"))
        elif name in seen:
            causes.append(duplicate(f"{where}[{index}].name", name))
        seen.add(name)
        causes += expression_causes(condition.get("expression"), f"{where}[{index}].expression")
    return causes


def expression_causes(expression: Any, where: str, *, needed: bool = True) -> list[Cause]:
    """What is wrong with a CEL expression."""
    if not expression:
        return [required(where)] if needed else []
    problem = cel.check(str(expression))
    return [invalid_value(where, expression, problem)] if problem else []


def policy_causes(obj: Json) -> list[Cause]:
    """What is wrong with a ValidatingAdmissionPolicy."""
    spec = section(obj, "spec")
    causes: list[Cause] = []
    rules = entries(spec, "matchConstraints", "resourceRules")
    if not rules:
        causes.append(required("spec.matchConstraints.resourceRules"))
    causes += _rules_causes(rules, "spec.matchConstraints.resourceRules")
    causes += condition_causes(entries(spec, "matchConditions"), "spec.matchConditions")
    if not entries(spec, "validations") and not entries(spec, "auditAnnotations"):
        causes.append(
            required(
                "spec.validations", "validations or auditAnnotations must contain at least one item"
            )
        )
    for index, variable in enumerate(entries(spec, "variables")):
        causes += expression_causes(
            variable.get("expression"), f"spec.variables[{index}].expression"
        )
    for index, validation in enumerate(entries(spec, "validations")):
        where = f"spec.validations[{index}]"
        causes += expression_causes(validation.get("expression"), f"{where}.expression")
        causes += expression_causes(
            validation.get("messageExpression"), f"{where}.messageExpression", needed=False
        )
    return causes


def binding_causes(obj: Json) -> list[Cause]:
    """What is wrong with a ValidatingAdmissionPolicyBinding."""
    spec = section(obj, "spec")
    causes = [] if spec.get("policyName") else [required("spec.policyName")]
    actions = spec.get("validationActions") or []
    if not actions:
        causes.append(required("spec.validationActions"))
    causes += [
        not_supported("spec.validationActions", action, _ACTIONS)
        for action in actions
        if action not in _ACTIONS
    ]
    if "Deny" in actions and "Warn" in actions:
        causes.append(
            invalid_value("spec.validationActions", actions, "must not contain both Deny and Warn")
        )
    return causes
