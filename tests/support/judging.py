"""A small cluster's policies and offers, and the checks that every verdict must pass."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, Final

import jsonpatch

from sharing.api.profile import SharingProfile, parse_profile
from sharing.inventory import Inventory, NodeInventory, node_offers
from sharing.mode import Mode
from sharing.shareclass import parse_resource_name
from webhook.admission import admit_pod
from webhook.policies import Policies
from webhook.verdict import Verdict

H100_MIB: Final = 81559
NAMES: Final = [mode.value for mode in Mode]


def offers(*shares: tuple[str, int, int]) -> NodeInventory:
    """A node that offers shares given as (resource, MiB, milli-GPU)."""
    classes = [(parse_resource_name(name), mib, milli) for name, mib, milli in shares]
    known = [(found, mib, milli) for found, mib, milli in classes if found is not None]
    return NodeInventory(name="n1", offers=node_offers(known))


def inventory(*shares: tuple[str, int, int]) -> Inventory:
    """One such node."""
    return Inventory((offers(*shares),))


H100S: Final = inventory(
    ("nvidia.com/gpu", H100_MIB, 1000),
    ("nvidia.com/mig-1g.10gb", 9984, 143),
    ("nvidia.com/mig-2g.20gb", 20096, 286),
    ("nvidia.com/mig-3g.40gb", 40448, 496),
    ("gpu.sharing/mps-1of2", H100_MIB // 2, 500),
    ("gpu.sharing/mps-1of4", H100_MIB // 4, 250),
    ("gpu.sharing/mps-1of8", H100_MIB // 8, 125),
    ("gpu.sharing/timeslice-1of2", H100_MIB // 2, 500),
    ("gpu.sharing/timeslice-1of4", H100_MIB // 4, 250),
    ("team-a.gpu.sharing/mps-1of4", H100_MIB // 4, 250),
    ("team-a.gpu.sharing/gpu", H100_MIB, 1000),
)
"""H100s, cut in every way. 1g.10gb is 1/8 of the memory slices, 2g.20gb 1/4, 3g.40gb 1/2."""


def profile(name: str = "policy", **spec: Any) -> SharingProfile:
    """A profile of these fields, spelled as in a manifest."""
    return parse_profile({"metadata": {"name": name}, "spec": spec})


def policies(*profiles: SharingProfile, **labels: Mapping[str, str]) -> Policies:
    """Policies: a namespace for each profile, one for each mode, and others by their labels."""
    namespaces: dict[str, Mapping[str, str]] = {mode: {"gpu.sharing/mode": mode} for mode in NAMES}
    namespaces |= {one.name: {"gpu.sharing/profile": one.name} for one in profiles}
    return Policies(
        namespaces={**namespaces, "free": {}, **labels}, profiles={p.name: p for p in profiles}
    )


def container(name: str = "main", **fields: Any) -> dict[str, Any]:
    """A container; ``limits`` and ``requests`` go into its resources."""
    resources = {key: fields.pop(key) for key in ("limits", "requests") if key in fields}
    return {
        "name": name,
        "image": "app:1",
        **({"resources": resources} if resources else {}),
        **fields,
    }


def pod(
    *containers: dict[str, Any],
    init: list[dict[str, Any]] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod called web."""
    metadata: dict[str, Any] = {"name": "web"}
    if annotations is not None:
        metadata["annotations"] = annotations
    body = {"containers": list(containers), **spec}
    if init is not None:
        body["initContainers"] = init
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def judge(
    manifest: dict[str, Any],
    governed_by: SharingProfile | str,
    nodes: Inventory | None = H100S,
) -> tuple[Verdict, dict[str, Any]]:
    """The verdict on a pod under a profile, or in a namespace, and the pod that it becomes.

    Whatever the verdict: the pod that came in is not touched, a denial changes nothing, each
    warning is one short line, and a second pass has nothing to do.
    """
    known = policies() if isinstance(governed_by, str) else policies(governed_by)
    namespace = governed_by if isinstance(governed_by, str) else governed_by.name
    before = copy.deepcopy(manifest)
    verdict = admit_pod(manifest, namespace, known, nodes)
    assert manifest == before
    assert all(len(warning) < 120 and "\n" not in warning for warning in verdict.warnings)
    after = apply(verdict, manifest)
    if not verdict.allowed:
        assert verdict.code in (403, 422)
        assert not verdict.operations
        assert not verdict.grants
    else:
        again = admit_pod(after, namespace, known, nodes)
        assert again.allowed, again.message
        assert again.operations == ()
        assert again.grants == verdict.grants
    return verdict, after


def apply(verdict: Verdict, manifest: dict[str, Any]) -> dict[str, Any]:
    """The object after the verdict's patch, by an independent implementation of RFC 6902."""
    patch = [operation.to_json() for operation in verdict.operations]
    # JSON has no shared parts, as a manifest made in a test may have.
    document = json.loads(json.dumps(manifest))
    patched: dict[str, Any] = jsonpatch.apply_patch(document, patch)
    return patched


def resources_of(manifest: dict[str, Any], name: str = "main") -> dict[str, str]:
    """The GPU resources in a container's limits."""
    spec = manifest["spec"]
    for one in spec["containers"] + (spec.get("initContainers") or []):
        if one["name"] == name:
            limits = one.get("resources", {}).get("limits", {})
            return {key: str(limits[key]) for key in limits if key not in ("cpu", "memory")}
    raise AssertionError(name)
