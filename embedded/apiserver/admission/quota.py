"""ResourceQuota: the last check before a write (pure over the store).

Extended resources are limited by ``requests.NAME`` alone; ``limits.NAME`` and the bare name
are legal keys that limit nothing (quota/v1/evaluator/core/pods.go). Quotas with scopes are
not enforced here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

from embedded.apiserver.admission.attributes import Attributes, Operation
from embedded.apiserver.kinds import KindTable, ResourceKind
from embedded.apiserver.objects import Json, entries, meta, section
from embedded.apiserver.podrules import is_extended
from embedded.apiserver.quantities import amount, spelled
from embedded.apiserver.status import forbidden
from embedded.apiserver.store import Store

_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_COUNTED_BY_NAME: Final = frozenset(
    {"configmaps", "secrets", "services", "resourcequotas", "replicationcontrollers"}
)

Usage = Mapping[str, Fraction]


def check_quota(attributes: Attributes, store: Store, kinds: KindTable) -> None:
    """Refuse what would go beyond a quota of the namespace.

    Raises:
        StatusError: 403.
    """
    if attributes.operation is not Operation.CREATE or attributes.subresource:
        return
    wanted = usage_of(attributes.obj or {}, attributes.kind)
    for quota in store.objects("resourcequotas", attributes.namespace):
        hard = section(quota, "spec", "hard")
        if not attributes.namespace or section(quota, "spec").get("scopes"):
            continue
        _must_specify(attributes, quota, hard)
        asked = {name: value for name, value in wanted.items() if name in hard and value}
        if not asked:
            continue
        used = usage_in(store, kinds, attributes.namespace, asked)
        over = sorted(n for n, v in asked.items() if used[n] + v > amount(str(hard[n])))
        if over:
            raise forbidden(
                attributes.kind,
                str(meta(attributes.obj or {}).get("name") or ""),
                f"exceeded quota: {meta(quota)['name']}, "
                f"requested: {_listed(asked, over)}, used: {_listed(used, over)}, "
                f"limited: {','.join(f'{name}={hard[name]}' for name in over)}",
            )


def _listed(values: Usage, names: Iterable[str]) -> str:
    return ",".join(f"{name}={spelled(values[name])}" for name in names)


def _must_specify(attributes: Attributes, quota: Json, hard: Json) -> None:
    """A quota on cpu or memory wants every container to say how much."""
    if attributes.kind.qualified != "pods":
        return
    spec = section(attributes.obj, "spec")
    containers = entries(spec, "containers") + entries(spec, "initContainers")
    missing: dict[str, list[str]] = defaultdict(list)
    for key in sorted(hard):
        part, name = _compute_key(key)
        for container in containers if name else ():
            if name not in section(container, "resources", part):
                missing[key].append(str(container.get("name")))
    if missing:
        told = "; ".join(f"{key} for: {','.join(names)}" for key, names in missing.items())
        raise forbidden(
            attributes.kind,
            str(meta(attributes.obj or {}).get("name") or ""),
            f"failed quota: {meta(quota)['name']}: must specify {told}",
        )


def _compute_key(key: str) -> tuple[str, str]:
    """(part of resources, name) of a quota key on a compute resource; empty for others."""
    part, dot, name = key.partition(".")
    if dot and part in {"requests", "limits"} and name in _COMPUTE:
        return part, name
    return ("requests", key) if key in _COMPUTE else ("", "")


def usage_of(obj: Json, kind: ResourceKind) -> Usage:
    """What one object counts, by quota key."""
    used: dict[str, Fraction] = {f"count/{kind.qualified}": Fraction(1)}
    if kind.qualified in _COUNTED_BY_NAME:
        used[kind.qualified] = Fraction(1)
    if kind.qualified != "pods":
        return used
    if section(obj, "status").get("phase") in {"Succeeded", "Failed"}:
        return used
    used["pods"] = Fraction(1)
    spec = section(obj, "spec")
    for part in ("requests", "limits"):
        for name, value in pod_total(spec, part).items():
            if part == "requests" or not is_extended(name):
                used[f"{part}.{name}"] = value
            if part == "requests" and name in _COMPUTE:
                used[name] = value
    return used


def pod_total(spec: Json, part: str) -> dict[str, Fraction]:
    """Effective requests or limits of a pod (resourcehelper.PodRequests).

    Sidecars run beside everything that follows them; the largest init container counts
    against the sum of the containers; overhead comes on top.
    """
    steady: dict[str, Fraction] = defaultdict(Fraction)
    peak: dict[str, Fraction] = defaultdict(Fraction)
    for container in entries(spec, "containers"):
        _add(steady, section(container, "resources", part))
    sidecars: dict[str, Fraction] = defaultdict(Fraction)
    for container in entries(spec, "initContainers"):
        values = section(container, "resources", part)
        moment = dict(sidecars)
        _add(moment, values)
        for name, value in moment.items():
            peak[name] = max(peak[name], value)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, values)
            _add(steady, values)
    total = {
        name: max(steady.get(name, Fraction()), peak.get(name, Fraction()))
        for name in steady.keys() | peak.keys()
    }
    _add(total, spec.get("overhead") or {})
    return total


def _add(total: dict[str, Fraction], values: Mapping[str, object]) -> None:
    for name, value in values.items():
        total[name] = total.get(name, Fraction()) + amount(str(value))


def usage_in(store: Store, kinds: KindTable, namespace: str, names: Iterable[str]) -> Usage:
    """What a namespace uses of the named quota keys."""
    used: dict[str, Fraction] = {name: Fraction() for name in names}
    for kind in kinds:
        counted = f"count/{kind.qualified}" in used or kind.qualified in used
        if not kind.namespaced or not (counted or kind.qualified == "pods"):
            continue
        for obj in store.objects(kind.qualified, namespace):
            for name, value in usage_of(obj, kind).items():
                if name in used:
                    used[name] += value
    return used
