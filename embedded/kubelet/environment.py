"""A container's environment as its spec describes it.

``env`` and ``envFrom`` with their order and precedence (a later entry wins, ``env`` beats
``envFrom``), references to fields, config maps and secrets, and ``$(NAME)`` expansion
(pkg/kubelet ``makeEnvironmentVariables``). References to objects are handed in, read.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from embedded.errors import EmbeddedError
from embedded.scheduler.demand import requests_of

_REFERENCE: Final = re.compile(r"\$\$|\$\(([^()]*)\)")
_SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")

Contents: TypeAlias = Mapping[tuple[str, str], Mapping[str, str]]
"""What config maps and secrets hold, by kind and name; those that exist."""


class ConfigError(EmbeddedError):
    """A container's configuration cannot be made; the text is the kubelet's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What references in an environment may point at.

    Attributes:
        pod: The Pod object.
        node: The node's name.
        host_ip: The node's address.
        pod_ip: The pod's address.
        contents: Config maps and secrets.
    """

    pod: Mapping[str, Any]
    node: str
    host_ip: str = ""
    pod_ip: str = ""
    contents: Contents = field(default_factory=dict)


def sources_of(container: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The config maps and secrets that an environment refers to, by kind and name."""
    found = set()
    for entry in container.get("env") or []:
        value_from = entry.get("valueFrom") or {}
        for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            if value_from.get(key):
                found.add((kind, str(value_from[key].get("name"))))
    for entry in container.get("envFrom") or []:
        for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            if entry.get(key):
                found.add((kind, str(entry[key].get("name"))))
    return found


def contents_of(item: Mapping[str, Any]) -> dict[str, str]:
    """The texts that a ConfigMap or a Secret holds."""
    data = item.get("data") or {}
    if item.get("kind") == "Secret":
        return {key: b64decode(value).decode("utf-8", "replace") for key, value in data.items()}
    return {key: str(value) for key, value in data.items()}


def environment_of(container: Mapping[str, Any], around: Surroundings) -> dict[str, str]:
    """The variables that a container's spec sets.

    Raises:
        ConfigError: If a config map, a secret or a key is missing and not optional.
    """
    variables: dict[str, str] = {}
    for entry in container.get("envFrom") or []:
        variables |= _from_object(entry, around)
    for entry in container.get("env") or []:
        value_from = entry.get("valueFrom")
        if value_from:
            value = _from_reference(value_from, container, around)
        else:
            value = expand(str(entry.get("value") or ""), variables)
        if value is not None:
            variables[str(entry.get("name"))] = value
    return variables


def expand(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` replaced where NAME is known, ``$$`` by one dollar."""

    def replaced(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(replaced, text)


def _from_object(entry: Mapping[str, Any], around: Surroundings) -> dict[str, str]:
    prefix = str(entry.get("prefix") or "")
    for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
        reference = entry.get(key)
        if reference:
            contents = around.contents.get((kind, str(reference.get("name"))))
            if contents is not None:
                return {prefix + name: value for name, value in contents.items()}
            if not reference.get("optional"):
                raise ConfigError("", f'{kind.lower()} "{reference.get("name")}" not found')
    return {}


def _from_reference(
    value_from: Mapping[str, Any], container: Mapping[str, Any], around: Surroundings
) -> str | None:
    for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        reference = value_from.get(key)
        if reference:
            return _from_key(kind, reference, around)
    if value_from.get("resourceFieldRef"):
        return _from_resource(value_from["resourceFieldRef"], container)
    return _from_field(str((value_from.get("fieldRef") or {}).get("fieldPath")), around)


def _from_key(kind: str, reference: Mapping[str, Any], around: Surroundings) -> str | None:
    name, key = str(reference.get("name")), str(reference.get("key"))
    contents = around.contents.get((kind, name))
    if contents is not None and key in contents:
        return contents[key]
    if reference.get("optional"):
        return None
    if contents is None:
        raise ConfigError("", f'{kind.lower()} "{name}" not found')
    namespace = (around.pod.get("metadata") or {}).get("namespace")
    raise ConfigError("", f"couldn't find key {key} in {kind} {namespace}/{name}")


def _from_resource(reference: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    side, _, resource = str(reference.get("resource")).partition(".")
    if side == "requests":
        return str(requests_of(container).get(resource, 0))
    limits = {"resources": {"limits": (container.get("resources") or {}).get("limits")}}
    return str(requests_of(limits).get(resource, 0))


def _from_field(path: str, around: Surroundings) -> str:
    metadata = around.pod.get("metadata") or {}
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        return str((metadata.get(subscript[1]) or {}).get(subscript[2], ""))
    known = {
        "metadata.name": metadata.get("name"),
        "metadata.namespace": metadata.get("namespace"),
        "metadata.uid": metadata.get("uid"),
        "spec.nodeName": around.node,
        "spec.serviceAccountName": (around.pod.get("spec") or {}).get("serviceAccountName"),
        "status.hostIP": around.host_ip,
        "status.podIP": around.pod_ip,
    }
    if path not in known:
        raise ConfigError("", f"unsupported fieldPath: {path}")
    return str(known[path] or "")
