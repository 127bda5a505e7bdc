"""The last looks at a decision: several GPUs by another spelling, and a share beside an ask."""

from __future__ import annotations

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


@pytest.mark.parametrize("fraction", ["0.2", "0.5"])
def test_what_an_allowed_size_would_hold_is_never_called_more_than_the_profile_allows(
    fraction: str,
) -> None:
    policy = profile(mode="mps", allowedSizes=["1of2", "1of8"])
    asks = pod(container(), annotations={"gpu.sharing/fraction": fraction})
    verdict, _ = judge(asks, policy, inventory(("gpu.sharing/mps-1of8", H100_MIB // 8, 125)))
    assert verdict.code == 403
    assert "no ready node offers" in verdict.message


def test_several_shares_by_memory_that_no_class_is_are_refused_even_where_pods_may_wait() -> None:
    """The largest share would be awaited, and have less than was asked for."""
    asks = pod(container(limits={GPU: "2"}), annotations={"gpu.sharing/memory": "30Gi"})
    verdict, _ = judge(asks, profile(mode="mps", onUnsatisfiable="admit"))
    assert verdict.code == 403
    assert "a container gets one share" in verdict.message
