"""Keeps ``status.used`` of quotas in step with what their namespaces hold.

In a real cluster the quota admission plug-in and a controller do this together.
"""

from __future__ import annotations

from embedded.apiserver.admission.quota import usage_in
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json, namespace_of, section
from embedded.apiserver.quantities import spelled
from embedded.apiserver.registry import Registry


class QuotaStatus:
    """Follows the writes of a registry.

    Args:
        registry: Whose writes are followed.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        registry.after_write.append(self._written)

    def _written(self, kind: ResourceKind, old: Json | None, new: Json | None) -> None:
        if not kind.namespaced or not _counts(kind, old, new):
            return
        quotas = self._registry.kinds.named("resourcequotas")
        for quota in self._registry.store.objects("resourcequotas", namespace_of(new or old or {})):
            self._refresh(quotas, quota)

    def _refresh(self, kind: ResourceKind, quota: Json) -> None:
        hard = section(quota, "spec", "hard")
        store, kinds = self._registry.store, self._registry.kinds
        used = usage_in(store, kinds, namespace_of(quota), hard)
        status = {
            "hard": dict(hard),
            "used": {name: spelled(value) for name, value in used.items()},
        }
        if quota.get("status") != status:
            new = {**quota, "metadata": dict(quota["metadata"]), "status": status}
            self._registry.mark(kind, new, quota)


def _counts(kind: ResourceKind, old: Json | None, new: Json | None) -> bool:
    """Whether a write can change what a namespace uses."""
    if old is None or new is None or kind.qualified == "resourcequotas":
        return True
    phases = {section(obj, "status").get("phase") for obj in (old, new)}
    return kind.qualified == "pods" and len(phases) > 1
