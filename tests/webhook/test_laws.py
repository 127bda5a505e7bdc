"""Laws that hold for every pod, every profile and every inventory."""

from __future__ import annotations

import copy
import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sharing.api.profile import SharingProfile
from sharing.inventory import Inventory
from tests.support.judging import H100S, apply, inventory, policies, profile
from tests.support.pods import JSON, PODS, reordered, without_ours
from webhook.admission import admit_pod
from webhook.verdict import ALLOWED, Verdict

PROFILES: dict[str, SharingProfile] = {
    "mps": profile("p-mps", mode="mps", accounting=True),
    "fallback": profile(
        "p-fall", modes=["mig", "mps", "exclusive"], allowedModes=[], hideGPUs=True
    ),
    "free choice": profile(
        "p-choice",
        mode="time-slicing",
        allowedModes=["mps", "mig", "exclusive"],
        multiGPU="exclusive",
        privileged="allow",
        onUnsatisfiable="admit",
    ),
    "keep": profile("p-keep", mode="mig", wholeGPU="keep", migProfile="2g.20gb"),
    "placed": profile(
        "p-placed",
        mode="mps",
        allowedSizes=["1of2", "1of4"],
        memory={"default": "10Gi", "max": "30Gi"},
        nodeSelector={"pool": "a"},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        schedulerName="gang",
        runtimeClassName="nvidia",
        onUnsatisfiable="admit",
    ),
    "moving": profile(
        "p-moving",
        modes=["mps", "exclusive"],
        compatibility=["hami", "kai", "nos", "aliyun", "volcano", "nvidia-shared"],
        accounting=True,
    ),
    "pool": profile("p-pool", modes=["mps", "exclusive"], pool="team-a", accounting=True),
}
KNOWN = policies(*PROFILES.values())
NODES: list[Inventory | None] = [
    H100S,
    inventory(("gpu.sharing/mps-1of2", 40779, 500), ("nvidia.com/gpu", 81559, 1000)),
    Inventory(),
    None,
]
LAWS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
GOVERNED = st.sampled_from(sorted(PROFILES)).map(PROFILES.__getitem__)


def decide(manifest: dict[str, Any], one: SharingProfile, nodes: Inventory | None) -> Verdict:
    return admit_pod(manifest, one.name, KNOWN, nodes)


@LAWS
@given(PODS, GOVERNED, st.sampled_from(NODES))
def test_a_second_pass_changes_nothing(
    manifest: dict[str, Any], one: SharingProfile, nodes: Inventory | None
) -> None:
    """HAMi#2929, D2: mutate(mutate(p)) = mutate(p)."""
    first = decide(manifest, one, nodes)
    after = apply(first, manifest)
    second = decide(after, one, nodes)
    assert second.operations == ()
    assert (second.code, second.grants) == (first.code, first.grants)


@LAWS
@given(PODS, GOVERNED, st.sampled_from(NODES))
def test_a_second_pass_after_the_api_server_s_defaults_changes_nothing(
    manifest: dict[str, Any], one: SharingProfile, nodes: Inventory | None
) -> None:
    """The API server copies limits into requests before each call."""
    _default(manifest)
    after = apply(decide(manifest, one, nodes), manifest)
    _default(after)
    assert decide(after, one, nodes).operations == ()


def _default(manifest: dict[str, Any]) -> None:
    spec = manifest["spec"]
    for one in spec["containers"] + spec.get("initContainers", []):
        resources = one.get("resources") or {}
        limits = resources.get("limits")
        if limits:
            resources["requests"] = {**limits, **(resources.get("requests") or {})}


@LAWS
@given(PODS, GOVERNED, st.sampled_from(NODES))
def test_what_is_not_ours_survives(
    manifest: dict[str, Any], one: SharingProfile, nodes: Inventory | None
) -> None:
    """gardener#6818, windows-testing#576: unknown fields at every level."""
    before = copy.deepcopy(manifest)
    after = apply(decide(manifest, one, nodes), manifest)
    assert manifest == before
    for pod in (before, after):
        for name in ("nodeSelector", "schedulerName", "runtimeClassName"):
            pod["spec"].pop(name, None)
    assert without_ours(after) == without_ours(before)


def test_the_comparison_reads_lists_that_only_look_like_an_environment() -> None:
    """Unknown fields hold anything, also under names that we know."""
    odd = {"odd": {"env": [None, 3, {"name": "NVIDIA_VISIBLE_DEVICES"}, {"name": "MINE"}]}}
    assert without_ours(odd) == {"odd": {"env": [3, {"name": "MINE"}]}}


@LAWS
@given(PODS, GOVERNED, st.sampled_from(NODES))
def test_the_order_of_maps_decides_nothing(
    manifest: dict[str, Any], one: SharingProfile, nodes: Inventory | None
) -> None:
    straight, turned = decide(manifest, one, nodes), decide(reordered(manifest), one, nodes)
    assert (straight.code, straight.grants) == (turned.code, turned.grants)
    assert apply(straight, manifest) == apply(turned, reordered(manifest))


@LAWS
@given(PODS, st.sampled_from(NODES))
def test_a_pod_that_asks_for_no_gpu_gets_an_empty_answer(
    manifest: dict[str, Any], nodes: Inventory | None
) -> None:
    spec = manifest["spec"]
    for one in spec["containers"] + spec.get("initContainers", []):
        one.pop("resources", None)
    # Keys of ours among the labels would be told.
    manifest["metadata"].pop("labels", None)
    manifest["metadata"].pop("annotations", None)
    assert decide(manifest, PROFILES["mps"], nodes) == ALLOWED


@LAWS
@given(PODS, GOVERNED, st.sampled_from(NODES))
def test_every_granted_container_names_one_share_and_no_other_container_names_any(
    manifest: dict[str, Any], one: SharingProfile, nodes: Inventory | None
) -> None:
    verdict = decide(manifest, one, nodes)
    if not verdict.grants:
        return
    given_to = {grant.container: grant for grant in verdict.grants}
    spec = apply(verdict, manifest)["spec"]
    for container in spec["containers"] + spec.get("initContainers", []):
        limits = (container.get("resources") or {}).get("limits") or {}
        shares = {
            key: amount
            for key, amount in limits.items()
            if any(mark in key for mark in ("gpu.sharing/m", "gpu.sharing/t", "nvidia.com/mig"))
            or key in ("nvidia.com/gpu", "team-a.gpu.sharing/gpu")
        }
        shares.pop("gpu.sharing/milli-gpu", None)
        if container["name"] in given_to:
            grant = given_to[container["name"]]
            assert list(shares) == [grant.resource]
            assert str(shares[grant.resource]) in (str(grant.count), f"{grant.count}000m")
        else:
            assert all(amount in ("0", 0) for amount in shares.values())


@LAWS
@given(PODS, GOVERNED, st.sampled_from(NODES))
def test_every_refusal_teaches(
    manifest: dict[str, Any], one: SharingProfile, nodes: Inventory | None
) -> None:
    """What, where, why, what is accepted and one spelling that works."""
    verdict = decide(manifest, one, nodes)
    if not verdict.allowed:
        assert verdict.message.startswith(f"pod {one.name}/")
        assert re.search(r": (container \S+: )?(spec|metadata)\.\S+: ", verdict.message)
        assert "; expected " in verdict.message
        assert "; for example: " in verdict.message
        assert verdict.summary in verdict.message


@settings(max_examples=150, deadline=None)
@given(JSON, GOVERNED, st.sampled_from(NODES))
def test_arbitrary_json_never_raises(value: Any, one: SharingProfile, nodes: Any) -> None:
    for manifest in (
        value if isinstance(value, dict) else {},
        {"metadata": value, "spec": value},
        {"metadata": {"annotations": value}, "spec": {"containers": value}},
        {"metadata": {}, "spec": {"containers": [value, {"name": value, "resources": value}]}},
        {
            "metadata": {"annotations": {"gpu.sharing/fraction": value}},
            "spec": {
                "containers": [{"name": "a", "env": value, "resources": {"limits": value}}],
                "affinity": value,
                "volumes": [value],
            },
        },
    ):
        verdict = decide(manifest, one, nodes)
        apply(verdict, manifest)
