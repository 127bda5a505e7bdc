"""Which nodes offer what, ready to be asked by hostile pods: sets of nodes as bits of integers.

Built once for each inventory. To ask which nodes fulfil a pod's conditions, and whether one of
them has all shares that the pod needs, costs a few operations on integers of one bit a node, so a
review does not become dearer with the number of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from sharing.inventory import NodeInventory, Offer
from sharing.names import PREFIX
from sharing.shareclass import ShareClass
from webhook.where import ANYWHERE, Requirement, Where

_HOSTNAME: Final = "kubernetes.io/hostname"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_MOST_REMEMBERED: Final = 256


class Need(NamedTuple):
    """What a pod needs of one share class on its node."""

    shares: int
    memory_mib: int = 0
    """The least that each of these shares must have."""


class _Holders(NamedTuple):
    """Nodes that have the same of one share class."""

    offer: Offer
    nodes: int
    """One bit a node."""


class NodeIndex:
    """The ready nodes of one inventory.

    Args:
        nodes: The ready ones.
    """

    def __init__(self, nodes: Iterable[NodeInventory]) -> None:
        self._nodes = tuple(nodes)
        self.every: Final = (1 << len(self._nodes)) - 1
        """All ready nodes."""
        self._holders = _by_class(self._nodes)
        self._labels: dict[str, Mapping[str, int]] = {}
        self._keys: frozenset[str] | None = None
        self._found: dict[Where, int] = {ANYWHERE: self.every}

    def fulfilling(self, where: Where) -> int:
        """The nodes that fulfil conditions, as bits."""
        found = self._found.get(where)
        if found is None:
            found = self._find(where)
            if len(self._found) >= _MOST_REMEMBERED:
                self._found = {ANYWHERE: self.every}
            self._found[where] = found
        return found

    def offers(self, nodes: int) -> tuple[Offer, ...]:
        """What these nodes offer together, one offer a class, in order of classes."""
        found = (_merge(holders, nodes) for holders in self._holders.values())
        return tuple(offer for offer in found if offer is not None)

    def having(self, needs: Mapping[ShareClass, Need], nodes: int) -> int:
        """Those of these nodes that have all that is needed, each by itself."""
        for share_class, need in needs.items():
            enough = 0
            for offer, holders in self._holders.get(share_class, ()):
                if offer.count >= need.shares and offer.memory_mib >= need.memory_mib:
                    enough |= holders
            nodes &= enough
        return nodes

    def _find(self, where: Where) -> int:
        nodes = self.every
        for key, value in where.selector:
            nodes &= self._fulfil(Requirement(key, "In", (value,)))
        if where.terms is None:
            return nodes
        either = 0
        for term in where.terms:
            fulfil = self.every
            for requirement in term:
                fulfil &= self._fulfil(requirement)
            either |= fulfil
        return nodes & either

    def _fulfil(self, requirement: Requirement) -> int:
        key, operator, values = requirement
        carried = self._carried(key)
        if not carried and PREFIX + "/" in key:
            # The agent writes these; a file of nodes need not repeat them.
            return self.every
        if operator in ("In", "NotIn"):
            named = 0
            for value in values:
                named |= carried.get(value, 0)
            return named if operator == "In" else self.every & ~named
        if operator in ("Gt", "Lt"):
            return _compared(carried, operator, values)
        some = 0
        for nodes in carried.values():
            some |= nodes
        return some if operator == "Exists" else self.every & ~some

    def _carried(self, key: str) -> Mapping[str, int]:
        """The nodes by their value of one label; by name for the empty key."""
        known = self._labels.get(key)
        if known is not None:
            return known
        if self._keys is None:
            self._keys = frozenset().union(*(node.labels for node in self._nodes))
        if key and key not in self._keys and key != _HOSTNAME:
            return {}  # nothing is kept: there is no end of keys that no node carries
        values: dict[str, int] = {}
        for index, node in enumerate(self._nodes):
            value = node.labels.get(key) if key else node.name
            if value is None and key == _HOSTNAME:
                value = node.name
            if value is not None:
                values[value] = values.get(value, 0) | 1 << index
        self._labels[key] = values
        return values


def _by_class(nodes: tuple[NodeInventory, ...]) -> dict[ShareClass, tuple[_Holders, ...]]:
    """Who has what; nodes with one layout share one tuple of offers, which is looked at once."""
    alike: dict[int, tuple[tuple[Offer, ...], int]] = {}
    for index, node in enumerate(nodes):
        _, bits = alike.get(id(node.offers), (node.offers, 0))
        alike[id(node.offers)] = (node.offers, bits | 1 << index)
    by_class: dict[ShareClass, dict[tuple[int, int, int], _Holders]] = {}
    for offers, bits in alike.values():
        for offer in offers:
            same = by_class.setdefault(offer.share_class, {})
            said = (offer.count, offer.memory_mib, offer.milli)
            known = same.get(said)
            same[said] = _Holders(offer, bits | (known.nodes if known else 0))
    ordered = sorted(by_class, key=lambda share_class: share_class.sort_key)
    return {share_class: tuple(by_class[share_class].values()) for share_class in ordered}


def _merge(holders: Iterable[_Holders], nodes: int) -> Offer | None:
    found = [(offer, (bits & nodes).bit_count()) for offer, bits in holders if bits & nodes]
    if not found:
        return None
    return Offer(
        share_class=found[0][0].share_class,
        count=sum(offer.count * times for offer, times in found),
        memory_mib=min(offer.memory_mib for offer, _ in found),
        largest_memory_mib=max(offer.memory_mib for offer, _ in found),
        milli=max(offer.milli for offer, _ in found),
    )


def _compared(carried: Mapping[str, int], operator: str, values: tuple[str, ...]) -> int:
    """Nodes whose label, read as an integer, is above or below another one."""
    bound = _integer(values[0]) if len(values) == 1 else None
    if bound is None:
        return 0
    found = 0
    for text, nodes in carried.items():
        number = _integer(text)
        if number is not None and (number > bound if operator == "Gt" else number < bound):
            found |= nodes
    return found


def _integer(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) else None
