"""What the chart's roles allow, one right at a time, and the call that each is for (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.chart import installing, rendering

ACCOUNTS: Final = ("gpu-sharing-webhook", "gpu-sharing-agent", "gpu-sharing-controller")
_METHODS: Final = {
    "get": "GET", "list": "GET", "watch": "GET",
    "create": "POST", "update": "PUT", "patch": "PATCH",
}  # fmt: skip
_NOBODY: Final = "nobody"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Right:
    """One thing that a rule allows.

    Attributes:
        group: API group.
        resource: Plural, with its subresource.
        verb: As RBAC spells it.
        namespace: Where; empty for the whole cluster.
        name: Of the one object; empty for any.
    """

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return " ".join((self.verb, f"{self.resource}.{self.group}".rstrip("."), self.name)).strip()

    @property
    def call(self) -> tuple[str, str, dict[str, str], dict[str, Any] | None]:
        """Method, path, query and body of a call that needs this right and changes nothing."""
        plural, _, subresource = self.resource.partition("/")
        version = installing.VERSIONS[self.group]
        parts = ["/apis", self.group, version] if self.group else ["/api", version]
        namespace = self.namespace or ("default" if plural in ("pods", "events") else "")
        if self.verb in ("list", "watch"):
            namespace = self.namespace
        parts += ["namespaces", namespace] if namespace else []
        parts.append(plural)
        if self.verb not in ("list", "watch") and (self.verb != "create" or subresource):
            parts.append(self.name or _NOBODY)
        parts += [subresource] if subresource else []
        return _METHODS[self.verb], "/".join(parts), self._query(), self._body()

    def _query(self) -> dict[str, str]:
        if self.verb == "get":
            return {}
        if self.verb in ("list", "watch"):
            chosen = {"fieldSelector": f"metadata.name={self.name}"} if self.name else {}
            return chosen | (
                {"watch": "true", "timeoutSeconds": "1"} if self.verb == "watch" else {}
            )
        return {"dryRun": "All"}

    def _body(self) -> dict[str, Any] | None:
        return None if self.verb in ("get", "list", "watch") else {}


def roles_of(account: str, values: str) -> Iterator[dict[str, Any]]:
    """The roles that the chart binds to an account."""
    for binding in rendering.objects(values):
        subjects = {subject["name"] for subject in binding.get("subjects", ())}
        if binding["kind"].endswith("RoleBinding") and account in subjects:
            ref = binding["roleRef"]
            yield rendering.the(values, ref["kind"], ref["name"])


def rights_in(role: Mapping[str, Any]) -> Iterator[Right]:
    """The rights of one role."""
    namespace = role["metadata"].get("namespace", "")
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Right(
                            group=group, resource=resource, verb=verb,
                            namespace=namespace, name=name,
                        )  # fmt: skip


def rights_of(account: str, values: str) -> set[Right]:
    """All rights of an account."""
    return {right for role in roles_of(account, values) for right in rights_in(role)}


def without(role: Mapping[str, Any], right: Right) -> dict[str, Any]:
    """A role that lacks one right and has all others."""
    rules = []
    for each in rights_in(role):
        if each != right:
            rule = {"apiGroups": [each.group], "resources": [each.resource], "verbs": [each.verb]}
            rules.append({**rule, **({"resourceNames": [each.name]} if each.name else {})})
    return {**role, "rules": rules}


def asked(event: Mapping[str, Any]) -> Right | None:
    """What a line of the audit log asked for; None if it is about no resource."""
    reference = event.get("objectRef")
    if not isinstance(reference, Mapping) or not reference.get("resource"):
        return None
    resource = "/".join(
        part for part in (reference["resource"], reference.get("subresource")) if part
    )
    return Right(group=reference.get("apiGroup", ""), resource=resource, verb=event["verb"])
