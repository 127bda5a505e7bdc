"""Which shares the kubelet may hand out now, in any state between two layouts.

The rule that keeps the sum of shares below the GPU: a share of the new layout is offered once no
share of the old one can be handed out any more and none is held that the new layout lacks. What
pods still hold of the old layout is remembered for them and offered to nobody else.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharing.errors import ResourceNameError
from sharing.mode import Mode
from sharing.node.held import Hold, is_whole
from sharing.node.observed import GpuState
from sharing.node.plan import Kubelet
from sharing.node.target import Offered, Target, is_real, offered, strangers
from sharing.share import Share, part_memory_mib, place_of
from sharing.shareclass import ShareClass, parse_resource_name


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOffer:
    """What one GPU gives to the kubelet."""

    gpu: str
    shares: tuple[Share, ...] = ()
    """To be handed out, biggest first."""
    draining: tuple[Share, ...] = ()
    """Held, and not to be handed out again; by device id."""


def offer_of(gpu: GpuState, target: Target, kubelet: Kubelet, *, closed: bool = False) -> GpuOffer:
    """What a GPU gives to the kubelet, given where its layout comes to lie.

    Args:
        gpu: The GPU as it is.
        target: Where its layout comes to lie.
        kubelet: What the kubelet counts and who holds it.
        closed: Offer nothing; what is held stays with its holders.
    """
    holds = kubelet.held.on(gpu.uuid)
    foreign = strangers(gpu, target, holds)
    stands = _mechanism_stands(gpu, target) and not closed
    shares = target.shares(gpu) if stands else ()
    left_over = kubelet.on(gpu.uuid) - target.offers(gpu)
    if target.layout.mode is Mode.MIG:
        taken = {hold.device_id for hold in foreign} | {one.device_id for one in left_over}
        whole = any(is_whole(device_id) for device_id in taken)
        places = {place_of(device_id) for device_id in taken}
        shares = tuple(
            share
            for share in shares
            if not whole and share.place not in places and _is_cut(gpu, target, share)
        )
    elif foreign or left_over:
        shares = ()
    given = {offered(share) for share in shares}
    real = [hold for hold in holds if is_real(gpu, hold)]
    draining = {
        share.device_id: share
        for hold in real
        if Offered(hold.resource, hold.device_id) not in given
        and (share := _share_of(gpu, hold)) is not None
    }
    return GpuOffer(
        gpu=gpu.uuid,
        shares=shares,
        draining=tuple(share for _, share in sorted(draining.items())),
    )


def _mechanism_stands(gpu: GpuState, target: Target) -> bool:
    """Whether MIG mode and MPS daemon are what the layout needs."""
    if gpu.mig_enabled is not (target.layout.mode is Mode.MIG):
        return False
    return gpu.mps == (target.layout if target.layout.mode is Mode.MPS else None)


def _is_cut(gpu: GpuState, target: Target, share: Share) -> bool:
    """Whether the MPS daemon of a share's instance is what the layout needs there: often none."""
    profile = share.share_class.instance
    wanted = None if profile is None else target.layout.mps_of(profile)
    return all(one.mps == wanted for one in gpu.instances if one.device_id(gpu.uuid) == share.place)


def _share_of(gpu: GpuState, hold: Hold) -> Share | None:
    """The share that a hold is about; None if its resource is not ours."""
    try:
        share_class = parse_resource_name(hold.resource)
    except ResourceNameError:
        return None
    if share_class is None:
        return None
    start = hold.mig_place[1] if hold.mig_place else None
    return Share(
        device_id=hold.device_id,
        gpu_uuid=gpu.uuid,
        share_class=share_class,
        memory_mib=_memory_mib(gpu, share_class, hold.place),
        start=start,
    )


def _memory_mib(gpu: GpuState, share_class: ShareClass, place: str) -> int:
    cut_from = gpu.cuttables.get(place)
    return part_memory_mib(share_class, gpu.memory_mib if cut_from is None else cut_from.memory_mib)
