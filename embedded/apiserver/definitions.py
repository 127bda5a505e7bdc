"""Keeps the table of resources in step with the CustomResourceDefinitions that are stored."""

from __future__ import annotations

from typing import Final

from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import (
    Json,
    deep_copy,
    entries,
    meta,
    name_of,
    namespace_of,
    section,
    timestamp,
)
from embedded.apiserver.registry import Registry

RESOURCE: Final = "customresourcedefinitions.apiextensions.k8s.io"


class Definitions:
    """Serves what definitions define, and says so in their status.

    Args:
        registry: Whose writes are followed.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        registry.after_write.append(self._written)

    def _written(self, kind: ResourceKind, old: Json | None, new: Json | None) -> None:
        if kind.qualified != RESOURCE:
            return
        if new is None:
            self._withdraw(old or {})
            return
        spec = section(new, "spec")
        plural = str(section(spec, "names").get("plural"))
        self._registry.kinds.replace_custom(str(spec.get("group")), plural, kinds_of(new))
        if not section(new, "status").get("conditions"):
            self._registry.mark(kind, _established(new), new)

    def _withdraw(self, definition: Json) -> None:
        """Without its definition a custom resource is gone, and so are its objects."""
        spec = section(definition, "spec")
        group, plural = str(spec.get("group")), str(section(spec, "names").get("plural"))
        resource = f"{plural}.{group}"
        store = self._registry.store
        for obj in store.objects(resource):
            store.remove(resource, (namespace_of(obj), name_of(obj)))
        store.end_subscriptions(resource)
        self._registry.kinds.replace_custom(group, plural, ())


def kinds_of(definition: Json) -> tuple[ResourceKind, ...]:
    """The resources that a definition serves, one for each version."""
    spec = section(definition, "spec")
    names = section(spec, "names")
    versions = entries(spec, "versions")
    storage = next((str(v["name"]) for v in versions if v.get("storage")), "")
    found = []
    for version in versions:
        if not version.get("served"):
            continue
        parts = section(version, "subresources")
        schema = section(version, "schema", "openAPIV3Schema")
        found.append(
            ResourceKind(
                group=str(spec["group"]),
                version=str(version["name"]),
                kind=str(names["kind"]),
                plural=str(names["plural"]),
                singular=str(names.get("singular") or str(names["kind"]).lower()),
                namespaced=spec.get("scope") == "Namespaced",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=tuple(name for name in ("status",) if name in parts),
                list_kind=str(names.get("listKind") or f"{names['kind']}List"),
                storage_version=storage,
                columns=tuple(entries(version, "additionalPrinterColumns")),
                json_schema=schema,
                custom=True,
                selectable={
                    str(f["jsonPath"]).lstrip("."): str(f["jsonPath"])
                    for f in entries(version, "selectableFields")
                },
            )
        )
    return tuple(found)


def _established(definition: Json) -> Json:
    new: Json = deep_copy(definition)
    names, now = section(definition, "spec", "names"), timestamp()
    storage = [str(v["name"]) for v in entries(definition, "spec", "versions") if v.get("storage")]
    new["status"] = {
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": now,
            }
            for kind, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ],
        "acceptedNames": names,
        "storedVersions": storage,
    }
    new["metadata"] = {**meta(new)}
    return new
