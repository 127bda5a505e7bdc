"""Where a GPU's wanted layout comes to lie on it, given what is there and in use.

Instances that somebody uses stay where they are, idle ones stay where that costs nothing, and the
rest is placed around them. Where that is impossible the layout is placed as if the users were
gone: they are waited for, never moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sharing.board import Board, Placement
from sharing.errors import LayoutError
from sharing.layout import GpuLayout
from sharing.migcut import check_cuts
from sharing.miglayout import Placed, place
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.node.held import Hold
from sharing.node.observed import GpuState, Instance
from sharing.share import PlacedInstance, Share, shares_of


@dataclass(frozen=True, slots=True, order=True)
class Offered:
    """A share as the kubelet counts it: one device of one extended resource."""

    resource: str
    device_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What one GPU shall become, with the place of each MIG instance."""

    layout: GpuLayout
    places: tuple[Placed, ...] = ()
    """Biggest first, which is the order to create them in; empty for other modes."""

    def shares(self, gpu: GpuState) -> tuple[Share, ...]:
        """Those of its shares that the GPU has now; MIG instances must exist, others always do."""
        return shares_of(
            self.layout,
            gpu_uuid=gpu.uuid,
            memory_mib=gpu.memory_mib,
            instances=gpu.share_instances(frozenset(self.places)) if gpu.mig_enabled else (),
        )

    def offers(self, gpu: GpuState) -> frozenset[Offered]:
        """All of its shares as the kubelet will count them, existing or not."""
        instances = [
            PlacedInstance(profile=at.profile, start=at.placement.start, memory_mib=0)
            for at in self.places
        ]
        shares = shares_of(
            self.layout, gpu_uuid=gpu.uuid, memory_mib=gpu.memory_mib, instances=instances
        )
        return frozenset(offered(share) for share in shares)


def offered(share: Share) -> Offered:
    """A share as the kubelet counts it."""
    return Offered(share.share_class.resource_name, share.device_id)


def refusal(board: Board, layout: GpuLayout) -> LayoutError | None:
    """Why a board can never have a layout; None if it can."""
    if layout.mode is not Mode.MIG:
        return None
    try:
        if layout.mig_profiles or not board.mig_capable:
            place(board, layout.mig_profiles)
            check_cuts(board, layout)
    except LayoutError as error:
        return error
    if not board.mig_capable:
        return LayoutError(
            f"board {board.name}",
            "has no MIG",
            fix="use mode mps, time-slicing or exclusive on it",
        )
    return None


def target_of(gpu: GpuState, layout: GpuLayout, holds: Sequence[Hold]) -> Target:
    """Where a layout comes to lie on a GPU.

    Args:
        gpu: The GPU as it is.
        layout: A layout that the board can have, see ``refusal``.
        holds: The holds on this GPU.
    """
    if layout.mode is not Mode.MIG:
        return Target(layout=layout)
    wanted = Counter(layout.mig_profiles)
    there = gpu.placed if gpu.mig_enabled else ()
    claimed = _claimed(gpu.board, holds, there, wanted)
    if Counter(at.profile for at in there) == wanted and not claimed:
        return Target(layout=layout, places=_biggest_first(there))
    used = tuple(one.placed for one in in_use(gpu, holds) if one.placed is not None)
    for held in (used + claimed, used, _matching(used, wanted)):
        try:
            places = place(gpu.board, wanted.elements(), held=held, idle=there)
        except LayoutError:
            continue
        return Target(layout=layout, places=_without_surplus(places, held, wanted))
    return Target(layout=layout, places=place(gpu.board, wanted.elements(), idle=there))


def strangers(gpu: GpuState, target: Target, holds: Iterable[Hold]) -> tuple[Hold, ...]:
    """The holds that a target has no room for: of another class, or of a place that goes away.

    A share whose MIG instance does not exist (after a reboot) takes nothing from anybody.
    """
    offers = target.offers(gpu)
    return tuple(
        hold
        for hold in holds
        if is_real(gpu, hold) and Offered(hold.resource, hold.device_id) not in offers
    )


def is_real(gpu: GpuState, hold: Hold) -> bool:
    """Whether there is something on the GPU that the hold is about.

    A share of the whole GPU counts while MIG mode is on too: its pod would take an instance for
    the GPU as soon as there is one.
    """
    if hold.mig_place is None:
        return True
    return any(one.device_id(gpu.uuid) == hold.place for one in gpu.instances)


def occupies(gpu: GpuState, hold: Hold) -> bool:
    """Whether the hold's pod can have work on the GPU now that a change would take from it.

    In MIG mode nothing runs on a GPU as a whole. A pod that holds a share of the whole GPU there,
    since the mode came on at a reboot, waits for MIG mode to go.
    """
    if hold.mig_place is None:
        return not gpu.mig_enabled
    return is_real(gpu, hold)


def in_use(gpu: GpuState, holds: Iterable[Hold]) -> tuple[Instance, ...]:
    """The instances that a pod or a process holds, or may hold."""
    if not gpu.processes_listed:
        return gpu.instances
    places = {hold.place for hold in holds}
    busy = {process.gi_id for process in gpu.work}
    return tuple(
        one for one in gpu.instances if one.gi_id in busy or one.device_id(gpu.uuid) in places
    )


def _claimed(
    board: Board, holds: Iterable[Hold], there: Iterable[Placed], wanted: Counter[MigProfile]
) -> tuple[Placed, ...]:
    """Wanted places of instances that pods hold and a reboot took: made anew where they were."""
    taken = set(there)
    claimed = []
    for hold in sorted(set(holds)):
        named = hold.mig_place
        if named is None or named[0] not in wanted:
            continue
        length = board.mig_profile(named[0]).length
        placed = Placed(named[0], Placement(named[1], length))
        if placed not in taken:
            taken.add(placed)
            claimed.append(placed)
    return tuple(claimed)


def _matching(used: Iterable[Placed], wanted: Counter[MigProfile]) -> tuple[Placed, ...]:
    """Instances in use that the layout wants, at most as many of each as it wants."""
    left = Counter(wanted)
    kept = []
    for placed in sorted(used, key=lambda at: at.placement):
        if left[placed.profile] > 0:
            left[placed.profile] -= 1
            kept.append(placed)
    return tuple(kept)


def _without_surplus(
    places: Iterable[Placed], held: Iterable[Placed], wanted: Counter[MigProfile]
) -> tuple[Placed, ...]:
    """The places less those that only their users keep."""
    surplus = set(held) - set(_matching(held, wanted))
    return tuple(placed for placed in places if placed not in surplus)


def _biggest_first(places: Iterable[Placed]) -> tuple[Placed, ...]:
    return tuple(sorted(places, key=lambda at: (-at.placement.size, at.profile, at.placement)))
