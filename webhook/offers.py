"""What nodes offer, in the order in which a decision tries it: smallest first.

Worked out once for each inventory and set of nodes, then only looked up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from sharing.api.profile import SharingProfile
from sharing.catalogue import load
from sharing.inventory import Inventory, Offer
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.shareclass import ShareClass
from sharing.size import MILLI_PER_GPU, OneOf
from webhook.nodes import NodeIndex
from webhook.where import ANYWHERE, Where

_TOLERANCE: Final = 50
"""Drivers differ by less than 1/50 in the memory that they report for one MIG profile."""
_WHOLE: Final = Fraction(1)
_MOST_ROOMS: Final = 256
_POWERS: Final = tuple(OneOf(2**power) for power in range(5, -1, -1))
"""1of32 to 1of1: the sizes of a profile that lists none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """One share class that a container could get. Compared by identity, as Offers are."""

    share_class: ShareClass
    resource_name: str
    part: Fraction
    """The part of a GPU that it is; of its memory, for MIG and what is cut from it."""
    milli: int
    """Worth in thousandths of a GPU; the most that any node says."""
    memory_mib: int | None = None
    """What a pod can be sent to by node affinity; None where no node is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Offers:
    """Candidates by (mode, pool), smallest first."""

    by_kind: dict[tuple[Mode, str | None], tuple[Candidate, ...]] = field(default_factory=dict)
    by_class: dict[ShareClass, Candidate] = field(default_factory=dict)

    def of(self, mode: Mode, pool: str | None) -> tuple[Candidate, ...]:
        """Candidates of one mode and pool, those cut from MIG instances among them."""
        return self.by_kind.get((mode, pool), ())


class Room(NamedTuple):
    """The nodes that a pod may run on, and what they offer."""

    known: NodeIndex
    nodes: int
    """One bit a node."""
    offers: Offers


class Supply:
    """What the nodes of one inventory offer, to whatever pod asks.

    What was worked out is kept here, so that it goes when the inventory does.

    Args:
        inventory: The nodes.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._index = NodeIndex(node for node in inventory.nodes if node.ready)
        self._rooms: dict[int, Room] = {}

    def room(self, where: Where = ANYWHERE) -> Room:
        """The nodes that fulfil conditions."""
        nodes = self._index.fulfilling(where)
        found = self._rooms.get(nodes)
        if found is None:
            if len(self._rooms) >= _MOST_ROOMS:
                self._rooms.clear()
            offers = _gathered(self._index.offers(nodes))
            found = self._rooms[nodes] = Room(self._index, nodes, offers)
        return found


@lru_cache(maxsize=4)
def supply_of(inventory: Inventory) -> Supply:
    """The supply of an inventory; few inventories are asked about at a time."""
    return Supply(inventory)


@lru_cache(maxsize=64)
def _gathered(offered: tuple[Offer, ...]) -> Offers:
    """Offers as candidates; equal offers are one value, so that answers are remembered."""
    by_kind: dict[tuple[Mode, str | None], list[Candidate]] = {}
    by_class = {}
    for offer in offered:
        share_class, candidate = offer.share_class, _candidate(offer)
        by_class[share_class] = candidate
        by_kind.setdefault((share_class.mode, share_class.pool), []).append(candidate)
    return Offers(
        {kind: tuple(sorted(listed, key=_order)) for kind, listed in by_kind.items()}, by_class
    )


def _candidate(offer: Offer) -> Candidate:
    share_class = offer.share_class
    return Candidate(
        share_class=share_class,
        resource_name=share_class.resource_name,
        part=_part(share_class, offer.memory_mib, offer.milli),
        milli=offer.milli or _milli(share_class),
        memory_mib=offer.largest_memory_mib,
    )


def _order(candidate: Candidate) -> tuple[object, ...]:
    return (
        candidate.part,
        # Of equal parts those of a GPU: the memory of instances is a little less.
        candidate.share_class.cut_from is not None,
        candidate.milli,
        candidate.memory_mib or 0,
        candidate.share_class.sort_key,
    )


def _part(share_class: ShareClass, memory_mib: int, milli: int) -> Fraction:
    instance, size = share_class.instance, share_class.size
    cut = size.parts if isinstance(size, OneOf) else 1
    if instance is None:
        return Fraction(1, cut)
    whole = mig_part(instance, memory_mib * cut)
    return Fraction(milli, MILLI_PER_GPU) if whole is None else whole / cut


@lru_cache(maxsize=1024)
def mig_part(profile: MigProfile, memory_mib: int | None) -> Fraction | None:
    """The part of a GPU's memory slices that a MIG profile takes; None on unknown boards.

    By slices, not by MiB: half of an H100 (3g.40gb) has 40448 of 81559 MiB, since the driver keeps
    some for itself. Where boards differ, the smallest part counts.

    Args:
        profile: The MIG profile.
        memory_mib: Its memory, which tells boards apart; None for all boards.
    """
    parts = [
        Fraction(offered.length, board.mig_slots)
        for board in load().boards
        for offered in board.mig
        if offered.profile == profile
        and (
            memory_mib is None
            or abs(offered.memory_mib - memory_mib) * _TOLERANCE <= offered.memory_mib
        )
    ]
    return min(parts, default=None)


def possible(profile: SharingProfile, mode: Mode) -> tuple[Candidate, ...]:
    """What a profile allows of one mode, whatever nodes offer; smallest first.

    Under MIG that are the MIG profiles that it names: which others exist, only nodes can say.
    """
    pool = profile.spec.pool
    if mode is Mode.EXCLUSIVE:
        return (_assumed(ShareClass(mode=mode, pool=pool), _WHOLE),)
    if mode is Mode.MIG:
        named = {*(profile.mig_profiles or ()), *filter(None, [profile.default_mig_profile])}
        found = [
            _assumed(ShareClass(mode=mode, size=size, pool=pool), mig_part(size, None) or _WHOLE)
            for size in named
        ]
        return tuple(sorted(found, key=_order))
    sizes = _POWERS if profile.sizes is None else profile.sizes
    return tuple(
        _assumed(ShareClass(mode=mode, size=size, pool=pool), size.fraction) for size in sizes
    )


def _assumed(share_class: ShareClass, part: Fraction) -> Candidate:
    return Candidate(
        share_class=share_class,
        resource_name=share_class.resource_name,
        part=part,
        milli=_milli(share_class),
    )


def assumed(share_class: ShareClass) -> Candidate:
    """A share class that no known node offers."""
    size, instance = share_class.size, share_class.instance
    whole = _WHOLE if instance is None else mig_part(instance, None) or _WHOLE
    return _assumed(share_class, whole * (size.fraction if isinstance(size, OneOf) else 1))


@lru_cache(maxsize=1024)
def _milli(share_class: ShareClass) -> int:
    """Worth of a class that no node reports: by parts, or the most that any board gives it."""
    size, instance = share_class.size, share_class.instance
    if isinstance(size, OneOf):
        whole = MILLI_PER_GPU if instance is None else _milli_of_instance(instance)
        return -(-whole // size.parts)
    return MILLI_PER_GPU if instance is None else _milli_of_instance(instance)


@lru_cache(maxsize=256)
def _milli_of_instance(profile: MigProfile) -> int:
    """The most that any board gives an instance of a MIG profile."""
    worths = [
        max(
            -(-MILLI_PER_GPU * offered.memory_mib // board.memory_mib),
            -(-MILLI_PER_GPU * profile.gpu_slices // board.mig_compute_slices),
        )
        for board in load().boards
        for offered in board.mig
        if offered.profile == profile
    ]
    return min(MILLI_PER_GPU, max(worths, default=MILLI_PER_GPU))
