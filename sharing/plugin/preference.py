"""Which of the free devices to take: advice to the kubelet, pure, and never an error.

An error from GetPreferredAllocation fails the pod, so whatever is asked gets an answer: ids that
nobody knows are the last choice, and a GPU without a known place spoils nothing for the others.

Whole GPUs: the set whose worst pair is closest, then whose pairs are closest in sum, then the one
that leaves the largest blocks of close GPUs whole (the buddy rule: NUMA nodes first, then PCIe
switches and NVLink islands). Shares: fullest or emptiest GPU first, then MIG instance where they
are cut from some, and different GPUs for several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Any, Final

from sharing.mode import Mode
from sharing.plugin.binding import ShareBinding
from sharing.plugin.settings import Packing
from sharing.share import place_of

Links = Mapping[frozenset[str], int]
"""Closeness of two GPUs by their UUIDs, higher is closer; a missing pair counts as 0."""

_MOST_SETS: Final = 2000
"""Sets looked at one by one (8 GPUs have at most 70); with more, sets are grown greedily."""
_SAME_NUMA: Final = 1
_LINK: Final = 2
"""A link of any kind outweighs a shared NUMA node."""

_Rank = Callable[[Sequence[str]], tuple[Any, ...]]


def prefer(
    available: Sequence[str],
    must_include: Sequence[str],
    size: int,
    *,
    known: Mapping[str, ShareBinding],
    packing: Packing = Packing.PACK,
    links: Links | None = None,
) -> tuple[str, ...]:
    """The ids to take, ``size`` of them if there are so many; sorted.

    Args:
        available: Free ids.
        must_include: Ids that the answer has to hold.
        size: How many ids in all.
        known: Every share of the resource, by device id.
        packing: Where shares go.
        links: Closeness of GPUs.
    """
    must = sorted(set(must_include))
    free = sorted(set(available) - set(must))
    missing = min(max(size - len(must), 0), len(free))
    if missing == 0:
        return tuple(must[: max(size, 0)])
    placed = [one for one in free if one in known]
    strangers = [one for one in free if one not in known]
    wanted = min(missing, len(placed))
    if all(known[one].mode is Mode.EXCLUSIVE for one in placed):
        chosen = _whole_gpus(must, placed, wanted, known=known, links=links or {})
    else:
        chosen = _shares(must, placed, wanted, known=known, packing=packing)
    return tuple(sorted([*must, *chosen, *strangers[: missing - len(chosen)]]))


def _shares(
    must: Sequence[str],
    free: Sequence[str],
    count: int,
    *,
    known: Mapping[str, ShareBinding],
    packing: Packing,
) -> list[str]:
    left = Counter(spot for one in free for spot in _spots(known[one]))
    touched = Counter(spot for one in must if one in known for spot in _spots(known[one]))
    rest, chosen = list(free), []
    for _ in range(count):
        best = min(rest, key=lambda one: _share_rank(known[one], left, touched, packing))
        rest.remove(best)
        chosen.append(best)
        left.subtract(_spots(known[best]))
        touched.update(_spots(known[best]))
    return chosen


_Spot = tuple[bool, str]


def _spots(binding: ShareBinding) -> tuple[_Spot, _Spot]:
    """The GPU that a share is on, and what it is cut from: the same GPU or a MIG instance."""
    return (False, binding.gpu_uuid), (True, place_of(binding.device_id))


def _share_rank(
    binding: ShareBinding, left: Counter[_Spot], touched: Counter[_Spot], packing: Packing
) -> tuple[Any, ...]:
    sign = 1 if packing is Packing.PACK else -1
    by_spot = [(touched[spot], sign * left[spot], _natural(spot[1])) for spot in _spots(binding)]
    return (not binding.healthy, *by_spot, _natural(binding.device_id))


def _natural(device_id: str) -> tuple[int, str]:
    """So that share 2 comes before share 10."""
    return (len(device_id), device_id)


def _whole_gpus(
    must: Sequence[str],
    free: Sequence[str],
    count: int,
    *,
    known: Mapping[str, ShareBinding],
    links: Links,
) -> list[str]:
    given = [one for one in must if one in known]
    levels = _levels(free, known, links)

    def rank(chosen: Sequence[str]) -> tuple[Any, ...]:
        pairs = [_closeness(known[a], known[b], links) for a, b in combinations(chosen, 2)]
        new = [one for one in chosen if one not in given]
        return (
            sum(not known[one].healthy for one in chosen),
            -min(pairs, default=0),
            -sum(pairs),
            *(_broken(new, blocks) for blocks in levels),
            tuple(chosen),
        )

    if comb(len(free), count) <= _MOST_SETS:
        sets = ([*given, *extra] for extra in combinations(free, count))
        best = min(sets, key=rank)
    else:
        grown = (_grow([*given, seed], free, len(given) + count, rank) for seed in free)
        best = min(grown, key=rank)
    return [one for one in best if one not in given]


def _grow(start: Sequence[str], free: Sequence[str], size: int, rank: _Rank) -> list[str]:
    chosen = list(start)
    while len(chosen) < size:
        rest = (one for one in free if one not in chosen)
        chosen = min(([*chosen, one] for one in rest), key=rank)
    return chosen


def _levels(
    free: Sequence[str], known: Mapping[str, ShareBinding], links: Links
) -> list[list[frozenset[str]]]:
    """The free GPUs in blocks: NUMA nodes, then closer and closer ones.

    Two GPUs are in one block of a level if a chain of pairs leads from one to the other that are
    all at least so close.
    """
    by_numa: dict[int | None, set[str]] = {}
    for one in free:
        by_numa.setdefault(known[one].numa_node, set()).add(one)
    numa = [frozenset(block) for block in by_numa.values()]
    pairs = {
        frozenset((a, b)): _closeness(known[a], known[b], links) for a, b in combinations(free, 2)
    }
    closer = (
        _blocks(free, [pair for pair, close in pairs.items() if close >= least])
        for least in sorted(set(pairs.values()))
    )
    return [numa, *closer]


def _blocks(free: Sequence[str], pairs: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    blocks = {one: frozenset((one,)) for one in free}
    for a, b in pairs:
        if blocks[a] is not blocks[b]:
            joined = blocks[a] | blocks[b]
            blocks |= dict.fromkeys(joined, joined)
    return list(dict.fromkeys(blocks.values()))


def _broken(chosen: Sequence[str], blocks: Sequence[frozenset[str]]) -> tuple[int, int]:
    """How many blocks a choice breaks into, and how much of them it leaves over."""
    touched = [block for block in blocks if not block.isdisjoint(chosen)]
    return len(touched), sum(map(len, touched)) - len(chosen)


def _closeness(one: ShareBinding, other: ShareBinding, links: Links) -> int:
    same_numa = one.numa_node is not None and one.numa_node == other.numa_node
    linked = links.get(frozenset((one.gpu_uuid, other.gpu_uuid)), 0)
    return _LINK * linked + _SAME_NUMA * same_numa
