"""The last looks at a decision: several GPUs by another spelling, and a share beside an ask."""

from __future__ import annotations

from typing import Any

import pytest

from sharing.inventory import Inventory, NodeInventory, node_offers
from sharing.shareclass import parse_resource_name
from tests.support.judging import (
    H100_MIB,
    container,
    inventory,
    judge,
    pod,
    profile,
    resources_of,
)

GPU = "nvidia.com/gpu"


def whole_gpus(count: int) -> Inventory:
    """One node with this many GPUs that nobody shares."""
    whole = parse_resource_name(GPU)
    assert whole is not None
    offers = node_offers([(whole, H100_MIB, 1000)] * count)
    return Inventory((NodeInventory(name="n1", offers=offers),))


def test_several_whole_gpus_are_denied_whatever_they_are_called() -> None:
    """multiGPU: two times the whole of a GPU are two GPUs."""
    asks = pod(container(limits={GPU: "2"}), annotations={"gpu.sharing/fraction": "1"})
    denied, _ = judge(asks, profile(mode="exclusive", multiGPU="deny"), whole_gpus(2))
    assert denied.code == 403
    assert "(multiGPU: deny)" in denied.message
    given, after = judge(asks, profile(mode="exclusive", multiGPU="exclusive"), whole_gpus(2))
    assert given.grants[0].count == 2
    assert resources_of(after) == {GPU: "2"}
    single = pod(container(limits={GPU: "1"}), annotations={"gpu.sharing/fraction": "1"})
    one, _ = judge(single, profile(mode="exclusive", multiGPU="deny"), whole_gpus(1))
    assert one.grants[0].count == 1


@pytest.mark.parametrize("beside", ["gpu.sharing/mps-1of2", "gpu.sharing/mps-1of8"])
def test_a_share_beside_an_ask_has_to_be_what_the_ask_becomes(beside: str) -> None:
    verdict, _ = judge(pod(container(limits={GPU: "1", beside: "1"})), "mps")
    assert verdict.code == 422
    assert f"would become gpu.sharing/mps-1of4, and {beside} stands beside it" in verdict.message
    same, after = judge(pod(container(limits={GPU: "1", "gpu.sharing/mps-1of4": "1"})), "mps")
    assert same.allowed
    assert resources_of(after) == {"gpu.sharing/mps-1of4": "1"}


@pytest.mark.parametrize(
    ("fraction", "allowed"),
    [
        ("0.2", {"mode": "mps", "allowedSizes": ["1of2", "1of8"]}),
        ("0.5", {"mode": "mps", "allowedSizes": ["1of2", "1of8"]}),
        ("0.5", {"modes": ["mig", "mps"], "allowedSizes": ["1of8"]}),
    ],
)
def test_what_an_allowed_size_would_hold_is_never_called_more_than_the_profile_allows(
    fraction: str, allowed: dict[str, Any]
) -> None:
    asks = pod(container(), annotations={"gpu.sharing/fraction": fraction})
    nodes = inventory(("gpu.sharing/mps-1of8", H100_MIB // 8, 125))
    verdict, _ = judge(asks, profile(**allowed), nodes)
    assert verdict.code == 403
    assert "no ready node offers" in verdict.message


def test_several_shares_by_memory_that_no_class_is_are_refused_even_where_pods_may_wait() -> None:
    """The largest share would be awaited, and have less than was asked for."""
    asks = pod(container(limits={GPU: "2"}), annotations={"gpu.sharing/memory": "30Gi"})
    verdict, _ = judge(asks, profile(mode="mps", onUnsatisfiable="admit"))
    assert verdict.code == 403
    assert "a container gets one share" in verdict.message


def test_a_pod_waits_for_no_share_that_is_less_than_it_asked_for() -> None:
    asks = pod(container(), annotations={"gpu.sharing/fraction": "0.75"})
    policy = profile(mode="mps", allowedSizes=["1of2", "1of4"], onUnsatisfiable="admit")
    assert judge(asks, policy)[0].code == 403
    memory = pod(container(), annotations={"gpu.sharing/memory": "100Gi"})
    assert judge(memory, profile(mode="mig", onUnsatisfiable="admit"))[0].code == 403


def test_a_default_mig_profile_is_waited_for_whatever_the_default_memory() -> None:
    policy = profile(
        mode="mig",
        migProfile="2g.20gb",
        migProfiles=["2g.20gb", "3g.40gb"],
        memory={"default": "30Gi"},
        onUnsatisfiable="admit",
    )
    _, after = judge(pod(container(limits={GPU: "1"})), policy, Inventory())
    assert resources_of(after) == {"nvidia.com/mig-2g.20gb": "1"}


def test_the_container_that_cannot_be_served_is_the_one_that_is_named() -> None:
    asks = pod(
        container("small", limits={GPU: "250m"}),
        container("large"),
        annotations={"large.gpu.sharing/memory": "70Gi"},
    )
    verdict, _ = judge(asks, "mps")
    assert "container large" in verdict.message


def test_containers_that_no_one_mode_serves_together_are_refused() -> None:
    """One needs more of a GPU than MIG has here, the other more memory than MPS has."""
    nodes = inventory(("nvidia.com/mig-1g.10gb", 9984, 143), ("gpu.sharing/mps-1of2", 7680, 500))
    asks = pod(
        container("part", limits={GPU: "500m"}),
        container("memory"),
        annotations={"memory.gpu.sharing/memory": "9Gi"},
    )
    verdict, _ = judge(asks, profile(modes=["mig", "mps"]), nodes)
    assert verdict.code == 403
    assert "container part" in verdict.message
