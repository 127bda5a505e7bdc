"""Decisions: (what a pod asks, profile, inventory) → a share class for each container.

The first of a profile's modes in which every undecided container can be served is taken for all
of them, so that a pod is not torn between nodes. A size that no class has is rounded up, never
down.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sharing.api.profile import MultiGpu, SharingProfile
from sharing.inventory import Inventory
from sharing.mode import Mode
from sharing.quantity import format_mib
from webhook import explain
from webhook.ask import Ask, Form
from webhook.choice import Field, fraction_of, is_elsewhere, memory_of, pick
from webhook.errors import RequestError
from webhook.grant import Grant
from webhook.offers import Candidate, offers_of
from webhook.permission import permitted_modes
from webhook.request import PodRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """One container's share, with what the patch needs to know."""

    ask: Ask
    grant: Grant
    share: Candidate
    """The class with what is known of it."""
    milli: int
    """Worth of all its shares in thousandths of a GPU."""
    least_memory_mib: int | None = None
    """Only nodes whose shares of the class have this much are eligible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """All containers' shares."""

    decided: tuple[Decided, ...] = ()
    warnings: tuple[str, ...] = ()


def decide(request: PodRequest, profile: SharingProfile, inventory: Inventory | None) -> Decision:
    """What the containers of a pod get.

    Args:
        request: What they ask for.
        profile: The namespace's policy.
        inventory: What nodes offer; None where nothing is known about nodes.

    Raises:
        PolicyError: The profile forbids it, or no node can serve it.
        RequestError: An ask contradicts the share that stands beside it.
    """
    offers = None if inventory is None else offers_of(inventory, profile.node_selector)
    field = Field(profile, offers)
    groups: dict[tuple[Mode, ...], list[Ask]] = {}
    for ask in request.asks:
        groups.setdefault(permitted_modes(ask, profile), []).append(ask)
    served = [one for modes, asks in groups.items() for one in _serve(asks, modes, field)]
    places = {container.path: place for place, container in enumerate(request.containers)}
    served.sort(key=lambda one: places[one[0].container.path])
    return Decision(
        decided=tuple(_decided(ask, share, mode, profile) for ask, share, mode in served),
        warnings=_caveats(served, field),
    )


_Served = tuple[Ask, Candidate, Mode]


def _serve(asks: list[Ask], modes: tuple[Mode, ...], field: Field) -> list[_Served]:
    """Serve asks that may choose among the same modes, all in the first one that can."""
    for mode in modes:
        picked = [(ask, pick(ask, mode, field)) for ask in asks]
        served = [(ask, share, mode) for ask, share in picked if share is not None]
        if len(served) == len(asks):
            _check_multi(served, field.profile)
            return served
    if field.offers is None or field.profile.spec.on_unsatisfiable == "deny":
        # One may be served where its fellow is not: blame the fellow.
        blamed = next(a for a in asks if any(pick(a, m, field) is None for m in modes))
        raise _refusal(blamed, modes, field)
    return [_waiting(ask, modes, field) for ask in asks]


def _check_multi(served: list[_Served], profile: SharingProfile) -> None:
    for ask, share, _ in served:
        whole = share.share_class.mode is Mode.EXCLUSIVE
        if whole and ask.count > 1 and profile.multi_gpu is MultiGpu.DENY:
            raise explain.many_gpus_denied(ask, profile)


def _refusal(ask: Ask, modes: tuple[Mode, ...], field: Field) -> Exception:
    """Why no class serves an ask."""
    profile, offers = field.profile, field.offers
    if not any(_could(ask, mode, profile) for mode in modes):
        return explain.too_large(ask, profile)
    if ask.count > 1:
        known = (c.share_class for mode in modes for c in field.candidates(mode))
        return explain.no_multiple(ask, known)
    if offers is None:
        return explain.unknown_nodes(ask, modes)
    return explain.unsatisfiable(ask, modes, profile, offers)


def _could(ask: Ask, mode: Mode, profile: SharingProfile) -> bool:
    """Whether the profile allows a size that is large enough; under MIG only nodes can say."""
    fraction = fraction_of(ask, profile)
    if mode is Mode.MIG or fraction is None or ask.named is not None:
        return True
    return any(share.part >= fraction for share in Field(profile, None).candidates(mode))


def _waiting(ask: Ask, modes: tuple[Mode, ...], field: Field) -> _Served:
    """What a pod that is let in waits for: the first mode in which its ask means a class."""
    allowed = Field(field.profile, None)
    for mode in modes:
        share = pick(ask, mode, allowed)
        if share is None and memory_of(ask, field.profile) is not None and ask.count == 1:
            share = next(reversed(allowed.candidates(mode)), None)
        if share is not None:
            return ask, share, mode
    raise _refusal(ask, modes, field)


def _caveats(served: list[_Served], field: Field) -> tuple[str, ...]:
    offers = field.offers
    if offers is None:
        return (explain.unchecked(),)
    return tuple(
        explain.waits(ask, share.share_class)
        for ask, share, _ in served
        if share.share_class not in offers.by_class and not is_elsewhere(ask, field.profile)
    )


def _decided(ask: Ask, share: Candidate, mode: Mode, profile: SharingProfile) -> Decided:
    share_class = share.share_class
    if ask.beside is not None and ask.beside != share_class:
        raise RequestError(
            f"{ask.container.label}: {ask.where}",
            f"{ask.text} stands beside {ask.beside}, and would become {share_class}",
            expected="one share for a container",
            fix="keep the one that is meant",
            example=ask.text,
        )
    count = ask.count if share_class.mode is Mode.EXCLUSIVE else 1
    grant = Grant(
        container=ask.container.name,
        share_class=share_class,
        count=count,
        request=ask.text,
        resources=ask.resources,
        profile=profile.name,
        reason=_reason(ask, share, mode, profile),
    )
    return Decided(
        ask=ask,
        grant=grant,
        share=share,
        milli=share.milli * count,
        least_memory_mib=_least_memory_mib(ask, mode, profile),
    )


def _least_memory_mib(ask: Ask, mode: Mode, profile: SharingProfile) -> int | None:
    memory_mib = memory_of(ask, profile)
    by_name = mode is Mode.MIG and ask.form is Form.WHOLE and profile.default_mig_profile
    if memory_mib is None or by_name or is_elsewhere(ask, profile):
        return None
    return memory_mib if mode is Mode.EXCLUSIVE else memory_mib * ask.count


def _reason(ask: Ask, share: Candidate, mode: Mode, profile: SharingProfile) -> str:
    because = _because(ask, share, mode, profile)
    if ask.mode is None and mode in profile.modes and mode is not profile.modes[0]:
        because += f"; no ready node serves it as {profile.modes[0]}"
    return because


def _because(ask: Ask, share: Candidate, mode: Mode, profile: SharingProfile) -> str:
    size = share.share_class.size
    if ask.named is not None or ask.mig_profile is not None:
        return "asked for by name" if ask.count == 1 else f"{ask.count} shares as one"
    if mode is Mode.EXCLUSIVE and ask.form is Form.WHOLE:
        return f"whole GPU by profile {profile.name}"
    memory_mib = memory_of(ask, profile)
    times = f"{ask.count} times " if ask.count > 1 else ""
    if memory_mib is not None:
        return f"smallest that has {times}{format_mib(memory_mib)}"
    fraction = fraction_of(ask, profile) or Fraction(1)
    exact = share.part == fraction * (ask.count if times else 1)
    if ask.form is Form.WHOLE:
        if mode is Mode.MIG and profile.default_mig_profile is not None:
            return f"default of profile {profile.name}"
        named = f"default {profile.default_size} of profile {profile.name}"
        return named if exact else f"{named}, rounded up"
    if exact:
        return f"{times}{fraction} of a GPU"
    return f"{times}{fraction} of a GPU, rounded up to the next size" + ("" if size else ", all")
