"""The inventory: what ready nodes offer."""

from __future__ import annotations

import itertools

from sharing.inventory import Inventory, NodeInventory, node_offers
from sharing.mode import Mode
from sharing.shareclass import ShareClass
from sharing.size import OneOf

QUARTER = ShareClass(mode=Mode.MPS, size=OneOf(4))
WHOLE = ShareClass(mode=Mode.EXCLUSIVE)


def node(name: str, memory_mib: int, *, ready: bool = True, zone: str = "a") -> NodeInventory:
    shares = [(QUARTER, memory_mib, 250), (QUARTER, memory_mib + 10, 250)]
    return NodeInventory(name=name, offers=node_offers(shares), ready=ready, labels={"zone": zone})


def test_offers_tell_the_smallest_share_and_the_largest_nodes_smallest() -> None:
    inventory = Inventory((node("a", 100), node("b", 300)))

    offer = inventory.offers()[QUARTER]

    assert (offer.count, offer.memory_mib, offer.largest_memory_mib) == (4, 100, 300)


def test_a_node_that_is_not_ready_offers_nothing() -> None:
    inventory = Inventory((node("a", 100, ready=False),))

    assert not inventory.offers()
    assert not inventory.serves(Mode.MPS, None)


def test_a_selector_narrows_the_nodes() -> None:
    inventory = Inventory((node("a", 100), node("b", 300, zone="b")))

    assert inventory.offers((("zone", "b"),))[QUARTER].memory_mib == 300
    assert not inventory.offers((("zone", "c"),))


def test_offers_do_not_depend_on_the_order_of_the_nodes() -> None:
    nodes = [node("a", 100), node("b", 300), node("c", 200)]

    results = {
        tuple(Inventory(tuple(order)).offers().items()) for order in itertools.permutations(nodes)
    }

    assert len(results) == 1


def test_a_pool_serves_only_its_own_tenants() -> None:
    pooled = ShareClass(mode=Mode.MPS, size=OneOf(4), pool="team-a")
    inventory = Inventory((NodeInventory(name="a", offers=node_offers([(pooled, 100, 250)])),))

    assert inventory.serves(Mode.MPS, "team-a")
    assert not inventory.serves(Mode.MPS, None)
    assert not inventory.serves(Mode.EXCLUSIVE, None)
