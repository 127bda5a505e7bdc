"""A pod runs on one node, so one node must have all of its shares."""

from __future__ import annotations

from typing import Any

import pytest

from sharing.inventory import Inventory, NodeInventory, node_offers
from sharing.shareclass import parse_resource_name
from tests.support.judging import container, judge, pod, profile, resources_of
from webhook.container import Container
from webhook.request import MOST_ASKERS

GPU = "nvidia.com/gpu"
EIGHTH, QUARTER, HALF = (f"gpu.sharing/mps-1of{n}" for n in (8, 4, 2))
SLICE, TURN = "nvidia.com/mig-1g.10gb", "gpu.sharing/timeslice-1of4"
SIZES = {EIGHTH: 10_000, QUARTER: 20_000, HALF: 40_000, SLICE: 9_984, TURN: 20_000, GPU: 81_000}


def node(name: str, **counts: int) -> NodeInventory:
    spelled = {"eighth": EIGHTH, "quarter": QUARTER, "half": HALF, "slice": SLICE, "turn": TURN}
    spelled["gpu"] = GPU
    shares = [
        (share_class, SIZES[spelled[word]], 100)
        for word, count in counts.items()
        for share_class in [parse_resource_name(spelled[word])] * count
        if share_class is not None
    ]
    return NodeInventory(name=name, offers=node_offers(shares))


def asking(*fractions: str, **more: Any) -> dict[str, Any]:
    listed = [container(f"c{n}", limits={GPU: part}) for n, part in enumerate(fractions)]
    return pod(*listed, **more)


def test_shares_that_only_different_nodes_have_are_refused_together() -> None:
    nodes = Inventory((node("n1", quarter=4), node("n2", half=1)))
    verdict, _ = judge(asking("250m", "500m", "500m"), "mps", nodes)
    assert verdict.code == 403
    assert "no single ready node" in verdict.message
    assert "gpu.sharing/mps-1of4: 1, gpu.sharing/mps-1of2: 2" in verdict.message
    assert "container c2" in verdict.message, "the last one, which finds the others there"
    admitting = profile(mode="mps", onUnsatisfiable="admit")
    verdict, _ = judge(asking("250m", "500m", "500m"), admitting, nodes)
    assert "no single ready node offers all of these shares" in verdict.warnings[0]


def test_a_larger_share_is_given_where_that_puts_all_on_one_node() -> None:
    nodes = Inventory((node("n1", quarter=4), node("n2", half=2)))
    verdict, after = judge(asking("250m", "500m"), "mps", nodes)
    assert resources_of(after, "c0") == resources_of(after, "c1") == {HALF: "1"}
    assert "rounded up to 1of2" in verdict.grants[0].reason


def test_the_next_mode_is_taken_where_the_first_has_not_all_on_one_node() -> None:
    nodes = Inventory((node("n1", slice=1), node("n2", slice=1), node("n3", eighth=2)))
    _, after = judge(asking("100m", "100m"), profile(modes=["mig", "mps"]), nodes)
    assert resources_of(after, "c0") == resources_of(after, "c1") == {EIGHTH: "1"}


def test_containers_in_different_modes_need_a_node_with_both() -> None:
    policy = profile(mode="mps", allowedModes=["mps", "time-slicing"])
    keys = {"c1.gpu.sharing/mode": "time-slicing"}
    apart = Inventory((node("n1", quarter=1), node("n2", turn=1)))
    verdict, _ = judge(asking("250m", "250m", annotations=keys), policy, apart)
    assert verdict.code == 403
    both = Inventory((*apart.nodes, node("n3", quarter=1, turn=1)))
    _, after = judge(asking("250m", "250m", annotations=keys), policy, both)
    assert (resources_of(after, "c0"), resources_of(after, "c1")) == ({QUARTER: "1"}, {TURN: "1"})


@pytest.mark.parametrize(
    ("init", "sidecars", "apps", "most"),
    [
        (1, 0, 1, 1),
        (3, 0, 2, 2),
        (1, 1, 0, 2),
        (0, 1, 1, 2),
        (1, 1, 1, 2),
        (2, 2, 1, 3),
        (1, 2, 0, 3),
    ],
)
def test_init_containers_take_turns_and_sidecars_stay(
    init: int, sidecars: int, apps: int, most: int
) -> None:
    """KAI PR#1556: sidecars add to apps; plain init containers run before, one by one."""
    limits = {QUARTER: 1}
    always = {"restartPolicy": "Always"}
    manifest = pod(
        *[container(f"a{n}", limits=limits) for n in range(apps)],
        container("plain"),
        init=[
            *[container(f"s{n}", limits=limits, **always) for n in range(sidecars)],
            *[container(f"i{n}", limits=limits) for n in range(init)],
        ],
    )
    assert judge(manifest, "mps", Inventory((node("n1", quarter=most),)))[0].allowed
    if most > 1:
        verdict, _ = judge(manifest, "mps", Inventory((node("n1", quarter=most - 1),)))
        assert f"gpu.sharing/mps-1of4: {most}" in verdict.message


def test_a_kept_whole_gpu_beside_a_share_must_be_on_the_share_s_node() -> None:
    policy = profile(mode="mps", wholeGPU="keep")
    manifest = asking("1", "250m")
    assert judge(manifest, policy, Inventory((node("n1", quarter=1),)))[0].code == 403
    assert judge(manifest, policy, Inventory((node("n1", quarter=1, gpu=1),)))[0].allowed
    assert judge(asking("1", "1"), policy, Inventory())[0].allowed, "nodes that are not ours may"


def test_memory_that_only_another_node_s_shares_have_is_no_help() -> None:
    large = parse_resource_name(QUARTER)
    assert large is not None
    other = NodeInventory(name="n2", offers=node_offers([(large, 30_000, 250)]))
    keys = {"c0.gpu.sharing/memory": "25000Mi"}
    nodes = Inventory((node("n1", quarter=2, half=2), other))
    _, after = judge(asking("0", "250m", annotations=keys), "mps", nodes)
    assert (resources_of(after, "c0")[HALF], resources_of(after, "c1")) == ("1", {QUARTER: "1"})


def test_thousands_of_containers_are_answered_in_bounded_time() -> None:
    nodes = Inventory((node("n1", eighth=8, half=2),))
    amounts = [f"{1 + n % 900}m" for n in range(3000)]
    assert judge(asking(*amounts[:MOST_ASKERS]), "mps", nodes)[0].code == 403
    assert judge(asking(*amounts), "mps", nodes)[0].code == 422


def test_a_container_is_told_apart_by_its_field() -> None:
    one = Container("", "/spec/initContainers/2", {}, is_init=True)
    assert (one.field, one.label) == ("spec.initContainers[2]", "container spec.initContainers[2]")


def test_a_share_that_stands_for_several_is_never_made_smaller() -> None:
    nodes = Inventory((node("n1", quarter=2), node("n2", eighth=2, half=1)))
    keys = {"c0.gpu.sharing/fraction": "1/8"}
    verdict, _ = judge(asking("2", "500m", annotations=keys), "mps", nodes)
    assert verdict.code == 403
    assert "gpu.sharing/mps-1of4: 1, gpu.sharing/mps-1of2: 1" in verdict.message


def test_a_mode_that_cannot_serve_all_is_passed_over_and_the_next_one_looked_at_as_closely() -> (
    None
):
    nodes = Inventory((node("n1", slice=4, eighth=1), node("n2", half=1)))
    verdict, _ = judge(asking("100m", "500m"), profile(modes=["mig", "mps"]), nodes)
    assert "no single ready node" in verdict.message


def test_grants_stand_in_the_order_of_containers_whatever_their_modes() -> None:
    policy = profile(mode="mps", allowedModes=["mps", "time-slicing"])
    keys = {f"c{n}.gpu.sharing/mode": "time-slicing" for n in (0, 2)}
    manifest = asking("250m", "250m", "250m", "250m", annotations=keys)
    for nodes in (Inventory((node("n1", quarter=2, turn=2),)), None):
        verdict, _ = judge(manifest, policy, nodes)
        assert [grant.container for grant in verdict.grants] == ["c0", "c1", "c2", "c3"]


def test_the_order_of_containers_is_no_order_of_names() -> None:
    policy = profile(mode="mps", allowedModes=["mps", "time-slicing"])
    names = ["z", "y", "x", "w"]
    manifest = pod(
        *[container(name, limits={GPU: "250m"}) for name in names],
        annotations={f"{name}.gpu.sharing/mode": "time-slicing" for name in ("z", "x")},
    )
    for nodes in (Inventory((node("n1", quarter=2, turn=2),)), None):
        verdict, _ = judge(manifest, policy, nodes)
        assert [grant.container for grant in verdict.grants] == names


def test_a_share_by_name_stays_while_others_grow_to_be_beside_it() -> None:
    nodes = Inventory((node("n1", quarter=1), node("n2", half=2)))
    manifest = pod(container("named", limits={HALF: 1}), container("part", limits={GPU: "250m"}))
    _, after = judge(manifest, "mps", nodes)
    assert resources_of(after, "named") == resources_of(after, "part") == {HALF: "1"}


def test_shares_that_are_apart_in_each_mode_are_refused_in_the_first() -> None:
    nodes = Inventory((node("n1", quarter=1, turn=1), node("n2", quarter=1, turn=1)))
    policy = profile(modes=["mps", "time-slicing"])
    verdict, _ = judge(asking("250m", "250m"), policy, nodes)
    assert f"({QUARTER}: 2)" in verdict.message


def test_the_first_container_s_share_is_kept_small_before_the_next_one_s() -> None:
    nodes = Inventory((node("n1", quarter=1, half=1), node("n2", half=1, eighth=1)))
    _, after = judge(asking("250m", "125m"), "mps", nodes)
    assert (resources_of(after, "c0"), resources_of(after, "c1")) == ({QUARTER: "1"}, {HALF: "1"})


def test_a_kept_whole_gpu_stays_whole_while_others_grow_to_be_beside_it() -> None:
    nodes = Inventory((node("n1", quarter=1), node("n2", gpu=1, half=1)))
    policy = profile(mode="mps", wholeGPU="keep", memory={"default": "90Gi"})
    _, after = judge(asking("1", "250m"), policy, nodes)
    assert (resources_of(after, "c0"), resources_of(after, "c1")) == ({GPU: "1"}, {HALF: "1"})
