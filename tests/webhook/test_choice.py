"""The smallest share that serves an ask: what it needs of a node, and why it was taken."""

from __future__ import annotations

from typing import Any

import pytest

from sharing.api.profile import SharingProfile
from sharing.inventory import Inventory
from tests.support.judging import H100_MIB, container, inventory, judge, pod, profile, resources_of

GPU = "nvidia.com/gpu"
PLAIN: dict[str, Any] = {GPU: "1"}
MIG_PROFILE = pod(container(), annotations={"gpu.sharing/mig-profile": "1g.10gb"})
WHOLE = (GPU, H100_MIB, 1000)


def one(limits: dict[str, Any] | None = None, **annotations: str) -> dict[str, Any]:
    keys = {f"gpu.sharing/{key}": value for key, value in annotations.items()}
    return pod(container(limits=limits) if limits else container(), annotations=keys)


def least_memory(after: dict[str, Any]) -> list[str]:
    """What the pod's node affinity wants shares to have more of, in MiB."""
    required = after["spec"]["affinity"]["nodeAffinity"]
    (term,) = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return [value for one in term["matchExpressions"] for value in one["values"]]


@pytest.mark.parametrize(
    ("policy", "given", "reason"),
    [
        (
            profile(mode="mig", migProfile="2g.20gb", memory={"default": "30Gi"}),
            "nvidia.com/mig-2g.20gb",
            "default of profile policy",
        ),
        (
            profile(mode="mps", wholeGPU="keep", memory={"default": "30Gi"}),
            GPU,
            "whole GPU by profile policy",
        ),
    ],
)
def test_a_default_by_memory_binds_no_share_that_is_given_for_another_reason(
    policy: SharingProfile, given: str, reason: str
) -> None:
    """The other modes of the profile need the memory; what has less of it would wait for ever."""
    verdict, after = judge(one(PLAIN), policy)
    assert resources_of(after) == {given: "1"}
    assert verdict.grants[0].reason == reason
    assert "affinity" not in after["spec"]


@pytest.mark.parametrize("modes", [["mps", "mig"], ["time-slicing", "mig"], ["exclusive", "mig"]])
def test_whatever_mode_is_taken_instead_the_one_before_it_is_named(modes: list[str]) -> None:
    nodes = inventory(("nvidia.com/mig-3g.40gb", 40448, 496))
    verdict, _ = judge(one(PLAIN), profile(modes=modes), nodes)
    assert verdict.grants[0].reason.endswith(f"; no ready node serves it as {modes[0]}")


def test_a_default_mig_profile_says_nothing_about_the_other_modes() -> None:
    policy = profile(modes=["mig", "exclusive"], migProfile="3g.40gb")
    verdict, _ = judge(one(PLAIN), policy, inventory(WHOLE))
    assert [grant.resource for grant in verdict.grants] == [GPU]


@pytest.mark.parametrize(
    ("mode", "share"), [("mps", ("gpu.sharing/mps-1of4", 20_000, 250)), ("exclusive", WHOLE)]
)
def test_a_default_by_memory_binds_the_modes_that_have_no_default_mig_profile(
    mode: str, share: tuple[str, int, int]
) -> None:
    policy = profile(modes=["mig", mode], migProfile="2g.20gb", memory={"default": "15Gi"})
    verdict, after = judge(one(PLAIN), policy, inventory(share))
    assert [grant.resource for grant in verdict.grants] == [share[0]]
    assert least_memory(after) == ["15359"]
    _, after = judge(one(PLAIN), profile(mode="mig", memory={"default": "15Gi"}))
    assert least_memory(after) == ["15359"], "no MIG profile is the default here"


def test_a_mode_that_the_pod_asks_for_is_no_second_choice() -> None:
    verdict, _ = judge(one(PLAIN, mode="mps"), profile(modes=["mig", "mps"]))
    assert verdict.grants[0].reason == "default 1of4 of profile policy"


def test_one_share_for_several_needs_the_memory_of_all() -> None:
    _, after = judge(one({GPU: 2}, memory="10Gi"), "mps")
    assert least_memory(after) == ["20479"]


def test_one_share_for_several_may_have_just_their_memory() -> None:
    nodes = inventory(("gpu.sharing/mps-1of4", 20_000, 250))
    _, after = judge(one({GPU: 2}, memory="10000Mi"), "mps", nodes)
    assert resources_of(after) == {"gpu.sharing/mps-1of4": "1"}
    assert least_memory(after) == ["19999"]


def test_each_of_several_whole_gpus_needs_the_memory() -> None:
    (node,) = inventory(WHOLE, WHOLE).nodes
    policy = profile(mode="exclusive", multiGPU="exclusive")
    _, after = judge(one({GPU: 2}, memory="30Gi"), policy, Inventory((node,)))
    assert resources_of(after) == {GPU: "2"}
    assert least_memory(after) == ["30719"]


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (one(PLAIN), "whole GPU by profile exclusive"),
        (one(memory="30Gi"), "smallest that has 30Gi"),
        (one(fraction="0.3"), "3/10 of a GPU, rounded up to a whole one"),
    ],
)
def test_a_whole_gpu_is_explained_by_what_was_asked(manifest: dict[str, Any], reason: str) -> None:
    assert judge(manifest, "exclusive")[0].grants[0].reason == reason


@pytest.mark.parametrize(
    ("manifest", "mode", "reason"),
    [
        (one(PLAIN), "mps", "default 1of4 of profile mps"),
        (one(PLAIN), "time-slicing", "default 1of4 of profile time-slicing, rounded up"),
        (one(fraction="0.3"), "mps", "3/10 of a GPU, rounded up to 1of2"),
        (one(fraction="0.5"), "mps", "1/2 of a GPU"),
        (one({"gpu.sharing/mps-1of2": 1}), "mps", "asked for by name"),
        (one({"gpu.sharing/mps-1of8": 2}), "mps", "2 shares as one"),
        (MIG_PROFILE, "mig", "asked for by name"),
    ],
)
def test_a_share_is_explained_by_what_was_asked(
    manifest: dict[str, Any], mode: str, reason: str
) -> None:
    nodes = inventory(
        ("gpu.sharing/mps-1of4", 20_000, 250),
        ("gpu.sharing/mps-1of2", 40_000, 500),
        ("gpu.sharing/timeslice-1of2", 40_000, 500),
        ("nvidia.com/mig-1g.10gb", 9984, 143),
    )
    assert judge(manifest, mode, nodes)[0].grants[0].reason == reason


@pytest.mark.parametrize("limited", [{"allowedSizes": ["1of2"]}, {"migProfiles": ["1g.10gb"]}])
def test_limits_on_sizes_of_one_kind_bind_no_other_kind(limited: dict[str, Any]) -> None:
    policy = profile(modes=["mig", "mps", "exclusive"], **limited)
    verdict, _ = judge(one(PLAIN), policy, inventory(WHOLE))
    assert [grant.resource for grant in verdict.grants] == [GPU]
    if "allowedSizes" in limited:
        _, after = judge(one(PLAIN), policy, inventory(("nvidia.com/mig-3g.40gb", 40448, 496)))
        assert resources_of(after) == {"nvidia.com/mig-3g.40gb": "1"}


def test_a_kept_whole_gpu_of_a_pool_is_given_whatever_the_default() -> None:
    policy = profile(mode="mps", wholeGPU="keep", pool="team-a", memory={"default": "90Gi"})
    _, after = judge(one(PLAIN), policy)
    assert resources_of(after) == {"team-a.gpu.sharing/gpu": "1"}


def test_shares_of_an_instance_add_up_to_shares_of_such_an_instance() -> None:
    instance = "gpu.sharing/mig-2g.20gb.mps"
    nodes = inventory(
        (f"{instance}-1of4", 5000, 72), (f"{instance}-1of2", 10_000, 143),
        ("gpu.sharing/mps-1of2", 40_000, 500),
    )  # fmt: skip
    _, after = judge(one({f"{instance}-1of4": 2}), "mps", nodes)
    assert resources_of(after) == {f"{instance}-1of2": "1"}


def test_mig_profiles_with_an_attribute_do_not_add_up_to_one_without() -> None:
    verdict, _ = judge(one({"nvidia.com/mig-1g.10gb.me": 2}), "mig")
    assert verdict.code == 403
    assert "a container gets one share" in verdict.message


@pytest.mark.parametrize(
    ("spec", "given"),
    [
        ({"mode": "mig", "migProfile": "1g.10gb"}, "nvidia.com/mig-2g.20gb"),
        ({"mode": "mps", "memory": {"default": "4Gi"}}, "gpu.sharing/mps-1of8"),
        ({"mode": "mps", "defaultSize": "1of8"}, "gpu.sharing/mps-1of4"),
    ],
)
def test_several_shares_of_the_default_become_one(spec: dict[str, Any], given: str) -> None:
    policy = profile(compatibility=["nvidia-shared"], **spec)
    _, after = judge(one({"nvidia.com/gpu.shared": 2}), policy)
    assert resources_of(after) == {given: "1"}


def test_one_share_for_several_parts_needs_no_nodes_to_be_known() -> None:
    _, after = judge(one({GPU: 2}, fraction="0.25"), "mps", None)
    assert resources_of(after) == {"gpu.sharing/mps-1of2": "1"}


@pytest.mark.parametrize("policy", ["mps", profile(mode="mps", onUnsatisfiable="admit")])
@pytest.mark.parametrize("memory", ["1Mi", "10Gi"])
def test_without_nodes_no_amount_of_memory_is_promised(
    memory: str, policy: SharingProfile | str
) -> None:
    verdict, _ = judge(one(memory=memory), policy, None)
    assert verdict.code == 403
    assert "no nodes are known" in verdict.message


def test_a_share_may_have_just_the_part_that_stands_beside_its_memory() -> None:
    amounts = {GPU: 1, "nvidia.com/gpumem": 15000, "nvidia.com/gpucores": 25}
    verdict, after = judge(one(amounts), profile(mode="mps", compatibility=["hami"]))
    assert resources_of(after) == {"gpu.sharing/mps-1of4": "1"}
    assert verdict.grants[0].reason == "smallest that has 15000Mi and 1/4 of a GPU"
