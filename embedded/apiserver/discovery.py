"""Tells clients which API groups, versions and resources there are (pure).

Plain discovery (``/api``, ``/apis``, ``/apis/G/V``) and the aggregated form of
``apidiscovery.k8s.io/v2`` that kubectl asks for first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json

VERSION: Final[Json] = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.2",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}

_SUBRESOURCE_VERBS: Final = {
    "status": ["get", "patch", "update"],
    "scale": ["get", "patch", "update"],
    "ephemeralcontainers": ["get", "patch", "update"],
    "binding": ["create"],
    "eviction": ["create"],
    "finalize": ["update"],
}
_SUBRESOURCE_KINDS: Final = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
}


def core_versions(host: str) -> Json:
    """``/api``."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}],
    }


def group_list(kinds: Iterable[ResourceKind]) -> Json:
    """``/apis``."""
    names = sorted({kind.group for kind in kinds if kind.group})
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [group(kinds, name) for name in names],
    }


def group(kinds: Iterable[ResourceKind], name: str) -> Json | None:
    """``/apis/GROUP``; nothing where there is no such group."""
    versions = _versions(kinds, name)
    if not versions:
        return None
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": listed,
        "preferredVersion": listed[0],
    }


def _versions(kinds: Iterable[ResourceKind], name: str) -> list[str]:
    """Versions of a group, most preferred first: v2, v1, v1beta1, v1alpha1 (version priority)."""

    def rank(version: str) -> tuple[int, str]:
        stage = 0 if "alpha" in version else 1 if "beta" in version else 2
        return (stage, version)

    found = {kind.version for kind in kinds if kind.group == name}
    return sorted(found, key=rank, reverse=True)


def resource_list(kinds: Iterable[ResourceKind], group_name: str, version: str) -> Json | None:
    """``/api/v1`` or ``/apis/GROUP/VERSION``; nothing where there is none."""
    served = [kind for kind in kinds if (kind.group, kind.version) == (group_name, version)]
    if not served:
        return None
    rows: list[Json] = []
    for kind in sorted(served, key=lambda kind: kind.plural):
        rows += [_row(kind), *(_subresource_row(kind, name) for name in sorted(kind.subresources))]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group_name}/{version}" if group_name else version,
        "resources": rows,
    }


def _row(kind: ResourceKind) -> Json:
    row: Json = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        row["shortNames"] = list(kind.short_names)
    if kind.categories:
        row["categories"] = list(kind.categories)
    return row


def _subresource_row(kind: ResourceKind, name: str) -> Json:
    row: Json = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": _SUBRESOURCE_VERBS.get(name, ["get"]),
    }
    if name in _SUBRESOURCE_KINDS:
        row["group"], row["version"], row["kind"] = _SUBRESOURCE_KINDS[name]
    return row


def aggregated(kinds: Iterable[ResourceKind], *, core: bool, version: str = "v2") -> Json:
    """All groups with all resources in one answer."""
    served = list(kinds)
    names = [""] if core else sorted({kind.group for kind in served if kind.group})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [_aggregated_group(served, name) for name in names],
    }


def _aggregated_group(kinds: list[ResourceKind], name: str) -> Json:
    metadata: Json = {"name": name} if name else {}
    return {
        "metadata": {**metadata, "creationTimestamp": None},
        "versions": [
            {
                "version": version,
                "freshness": "Current",
                "resources": [
                    _aggregated_row(kind)
                    for kind in sorted(kinds, key=lambda kind: kind.plural)
                    if (kind.group, kind.version) == (name, version)
                ],
            }
            for version in _versions(kinds, name)
        ],
    }


def _aggregated_row(kind: ResourceKind) -> Json:
    row: Json = {
        "resource": kind.plural,
        "responseKind": _response_kind(kind.group, kind.version, kind.kind),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        row["shortNames"] = list(kind.short_names)
    if kind.categories:
        row["categories"] = list(kind.categories)
    if kind.subresources:
        row["subresources"] = [
            {
                "subresource": name,
                "responseKind": _response_kind(
                    *_SUBRESOURCE_KINDS.get(name, (kind.group, kind.version, kind.kind))
                ),
                "verbs": _SUBRESOURCE_VERBS.get(name, ["get"]),
            }
            for name in sorted(kind.subresources)
        ]
    return row


def _response_kind(group_name: str, version: str, kind: str) -> dict[str, Any]:
    return {"group": group_name, "version": version, "kind": kind}
