"""The inventory: which share classes the cluster's nodes offer, as a decision needs it.

Built once when nodes change, then only looked up: the cost of a decision does not grow with the
number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from sharing.mode import Mode
from sharing.shareclass import ShareClass

Selector = tuple[tuple[str, str], ...]
"""Labels that a node must have, as (key, value)."""

_MOST_SUMS: Final = 256
"""Selectors come from profiles; more than these are summed up anew each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What one node, or all of them, offer of one share class."""

    share_class: ShareClass
    count: int
    """Shares that exist, free or held."""
    memory_mib: int
    """Memory of the smallest of them."""
    largest_memory_mib: int
    """Memory of the largest node's smallest: what a pod can be sent to by node affinity."""
    milli: int
    """Worth of one share in thousandths of a GPU; the most that any node says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInventory:
    """One node: its labels and its offers."""

    name: str
    offers: tuple[Offer, ...]
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    ready: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Inventory:
    """All nodes. Only ready nodes count as able to serve."""

    nodes: tuple[NodeInventory, ...] = ()
    _sums: dict[Selector, Mapping[ShareClass, Offer]] = field(default_factory=dict, init=False)
    """Offers by selector, kept as long as the inventory itself."""

    def offers(self, node_selector: Selector = ()) -> Mapping[ShareClass, Offer]:
        """Offers by share class over all ready nodes whose labels include the selector's."""
        known = self._sums.get(node_selector)
        if known is None:
            known = _offers(self.nodes, node_selector)
            if len(self._sums) < _MOST_SUMS:
                self._sums[node_selector] = known
        return known

    def serves(self, mode: Mode, pool: str | None) -> bool:
        """Whether some ready node has a share of this mode and pool."""
        return any(c.mode is mode and c.pool == pool for c in self.offers())


def _offers(nodes: Iterable[NodeInventory], node_selector: Selector) -> Mapping[ShareClass, Offer]:
    merged: dict[ShareClass, Offer] = {}
    for node in nodes:
        if node.ready and all(node.labels.get(k) == v for k, v in node_selector):
            for offer in node.offers:
                merged[offer.share_class] = _merge(merged.get(offer.share_class), offer)
    return dict(sorted(merged.items(), key=lambda item: item[0].sort_key))


def _merge(known: Offer | None, offer: Offer) -> Offer:
    if known is None:
        return offer
    return Offer(
        share_class=offer.share_class,
        count=known.count + offer.count,
        memory_mib=min(known.memory_mib, offer.memory_mib),
        largest_memory_mib=max(known.largest_memory_mib, offer.largest_memory_mib),
        milli=max(known.milli, offer.milli),
    )


def node_offers(
    shares: Iterable[tuple[ShareClass, int, int]],
) -> tuple[Offer, ...]:
    """One node's offers from its shares as (class, memory in MiB, worth in milli-GPU)."""
    offers: dict[ShareClass, Offer] = {}
    for share_class, memory_mib, milli in shares:
        one = Offer(
            share_class=share_class,
            count=1,
            memory_mib=memory_mib,
            largest_memory_mib=memory_mib,
            milli=milli,
        )
        known = offers.get(share_class)
        merged = _merge(known, one)
        offers[share_class] = Offer(
            share_class=share_class,
            count=merged.count,
            memory_mib=merged.memory_mib,
            largest_memory_mib=merged.memory_mib,
            milli=merged.milli,
        )
    return _one_of_equals(
        tuple(sorted(offers.values(), key=lambda offer: offer.share_class.sort_key))
    )


@lru_cache(maxsize=4096)
def _one_of_equals(offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
    """Nodes with one layout share one tuple: less memory, and quick to tell alike."""
    return offers
