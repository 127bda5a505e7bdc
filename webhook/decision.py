"""Decisions: (what a pod asks, profile, inventory) → a share class for each container.

The first of a profile's modes in which every undecided container can be served is taken for all
of them, and all shares of a pod must be had on one node that the pod may run on. A size that no
class has is rounded up, never down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

from sharing.api.choices import MultiGpu
from sharing.api.profile import SharingProfile
from sharing.inventory import Inventory
from sharing.mode import Mode
from webhook import explain
from webhook.ask import Ask, Want
from webhook.choice import Field, Solved, fraction_of, is_elsewhere, memory_of, solve, solved
from webhook.errors import PolicyError
from webhook.grant import Grant
from webhook.offers import Room, supply_of
from webhook.permission import permitted_modes
from webhook.request import PodRequest
from webhook.together import Served, have_room, needs_of, rearranged
from webhook.where import ANYWHERE, Where


class Decided(NamedTuple):
    """One container's share, with what the patch needs to know."""

    ask: Ask
    grant: Grant
    solved: Solved


class Decision(NamedTuple):
    """All containers' shares."""

    decided: tuple[Decided, ...] = ()
    warnings: tuple[str, ...] = ()


def decide(
    request: PodRequest,
    profile: SharingProfile,
    inventory: Inventory | None,
    where: Where = ANYWHERE,
) -> Decision:
    """What the containers of a pod get.

    Args:
        request: What they ask for.
        profile: The namespace's policy.
        inventory: What nodes offer; None where nothing is known about nodes.
        where: The nodes that the pod may run on.

    Raises:
        PolicyError: The profile forbids it, or no node can serve it.
        RequestError: An ask contradicts the share that stands beside it.
    """
    room = None if inventory is None else supply_of(inventory).room(where)
    field = Field(profile, None if room is None else room.offers)
    groups: dict[tuple[Mode, ...], list[Ask]] = {}
    for ask in request.asks:
        groups.setdefault(permitted_modes(ask, profile), []).append(ask)
    try:
        served, warnings = _serve_all(request, groups, field, room)
    except PolicyError:
        if inventory is None or not where.names_nodes:
            raise
        # A DaemonSet makes a pod for every node. To refuse one would hold the others up.
        decision = decide(request, profile, inventory, where.without_names())
        return decision._replace(warnings=(*decision.warnings, explain.named_node_lacks()))
    return Decision(
        decided=tuple(_decided(ask, found, profile) for ask, found in served),
        warnings=_caveats(served, field) + warnings,
    )


_Groups = Mapping[tuple[Mode, ...], list[Ask]]


def _serve_all(
    request: PodRequest, groups: _Groups, field: Field, room: Room | None
) -> tuple[Sequence[Served], tuple[str, ...]]:
    """Serve all asks, all on one node where nodes are known; with warnings."""
    if room is None or (len(request.asks) == 1 and request.asks[0].want.number == 1):
        return _serve_each(request, groups, field), ()
    apart: Sequence[Served] = ()
    for modes in product(*groups):
        asks = _with_modes(request, groups, modes)
        solutions = [(ask, solve(ask.want, mode, field)) for ask, mode in asks]
        served = [Served(ask, solved) for ask, solved in solutions if solved is not None]
        if len(served) < len(asks):
            continue
        if _fit(served, field, room):
            return served, ()
        larger = rearranged(asks, field, room)
        if larger is not None:
            return larger, ()
        apart = apart or served
    if not apart:
        # Some ask can be served nowhere: it is refused, or waits.
        return _serve_each(request, groups, field), ()
    if field.profile.spec.on_unsatisfiable == "deny":
        raise explain.apart(apart[-1].ask, needs_of(apart))
    return apart, (explain.waits_together(),)


def _with_modes(
    request: PodRequest, groups: _Groups, modes: tuple[Mode, ...]
) -> list[tuple[Ask, Mode]]:
    """Each ask with the mode that its group takes, in the pod's order."""
    chosen = zip(groups.values(), modes, strict=True)
    asks = [(ask, mode) for listed, mode in chosen for ask in listed]
    if len(groups) > 1:
        order = {container.path: place for place, container in enumerate(request.containers)}
        asks.sort(key=lambda pair: order[pair[0].container.path])
    return asks


def _fit(served: Sequence[Served], field: Field, room: Room) -> bool:
    """Whether one node has all of it; of whole GPUs alone, nodes that are not ours may."""
    if all(is_elsewhere(one.ask.want, field.profile) for one in served):
        return True
    return have_room(served, room)


def _serve_each(request: PodRequest, groups: _Groups, field: Field) -> list[Served]:
    """Serve each group of asks in the first of its modes that can."""
    served = [one for modes, asks in groups.items() for one in _serve(asks, modes, field)]
    if len(groups) > 1:
        order = {container.path: place for place, container in enumerate(request.containers)}
        served.sort(key=lambda one: order[one.ask.container.path])
    return served


def _serve(asks: list[Ask], modes: tuple[Mode, ...], field: Field) -> list[Served]:
    """Serve asks that may choose among the same modes, all in the first one that can."""
    for mode in modes:
        found = [(ask, solve(ask.want, mode, field)) for ask in asks]
        served = [Served(ask, solved) for ask, solved in found if solved is not None]
        if len(served) == len(asks):
            return served
    if field.offers is None or field.profile.spec.on_unsatisfiable == "deny":
        # One may be served where its fellow is not: blame the fellow.
        blamed = next(a for a in asks if any(solve(a.want, m, field) is None for m in modes))
        raise _refusal(blamed, modes, field)
    return [Served(ask, _waiting(ask, modes, field)) for ask in asks]


def _refusal(ask: Ask, modes: tuple[Mode, ...], field: Field) -> PolicyError:
    """Why no class serves an ask."""
    profile, offers = field.profile, field.offers
    if not any(_could(ask.want, mode, profile) for mode in modes):
        return explain.too_large(ask, profile)
    if ask.want.number > 1 and modes != (Mode.EXCLUSIVE,):
        known = (c.share_class for mode in modes for c in field.candidates(mode))
        return explain.no_multiple(ask, known)
    if offers is None:
        return explain.unknown_nodes(ask, modes)
    return explain.unsatisfiable(ask, modes, profile, offers)


def _could(want: Want, mode: Mode, profile: SharingProfile) -> bool:
    """Whether the profile allows a size that is large enough; under MIG only nodes can say."""
    fraction = fraction_of(want, profile)
    if mode is Mode.MIG or fraction is None:
        return True
    return any(share.part >= fraction for share in Field(profile, None).candidates(mode))


def _waiting(ask: Ask, modes: tuple[Mode, ...], field: Field) -> Solved:
    """What a pod that is let in waits for: the first mode in which its ask means a class."""
    allowed, want = Field(field.profile, None), ask.want
    for mode in modes:
        found = solve(want, mode, allowed)
        if found is None and memory_of(want, field.profile) is not None and want.number == 1:
            largest = allowed.candidates(mode)[-1:]
            found = solved(want, largest[0], mode, field) if largest else None
        if found is not None:
            return found
    raise _refusal(ask, modes, field)


def _caveats(served: Sequence[Served], field: Field) -> tuple[str, ...]:
    offers = field.offers
    if offers is None:
        return (explain.unchecked(),)
    return tuple(
        explain.waits(ask, found.share.share_class)
        for ask, found in served
        if found.share.share_class not in offers.by_class
        and not is_elsewhere(ask.want, field.profile)
    )


def _decided(ask: Ask, found: Solved, profile: SharingProfile) -> Decided:
    share_class = found.share.share_class
    if found.number > 1 and profile.multi_gpu is MultiGpu.DENY:
        raise explain.many_gpus_denied(ask, profile)
    if ask.beside is not None and ask.beside != share_class:
        raise explain.two_shares(ask, share_class)
    grant = Grant(
        container=ask.container.name,
        share_class=share_class,
        resource=found.share.resource_name,
        count=found.number,
        request=ask.text,
        resources=ask.resources,
        profile=profile.name,
        reason=found.reason,
        least_memory_mib=found.least_memory_mib,
    )
    return Decided(ask=ask, grant=grant, solved=found)
