"""Words: what a tenant reads when a request is refused, changed or passed on with a caveat.

Refusals name container, field, value, what is accepted, what to do and one spelling that works.
Warnings are one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sharing.api.profile import SharingProfile
from sharing.errors import shown
from sharing.mode import Mode
from sharing.quantity import format_mib
from sharing.shareclass import ShareClass
from webhook.ask import Ask
from webhook.errors import PolicyError, RequestError
from webhook.grant import Grant
from webhook.keys import EXAMPLES, Written
from webhook.lines import bounded
from webhook.nearmiss import Near
from webhook.nodes import Need
from webhook.offers import Offers

LONGEST_WARNING: Final = 119
"""The API server may cut longer ones. Source: Kubernetes API, AdmissionResponse.warnings."""
_MOST_LISTED: Final = 6
_SIZES: Final = {
    Mode.MIG: ", sizes: {1g.10gb: 7}",
    Mode.MPS: ", sizes: {1of4: 4}",
    Mode.TIME_SLICING: ", sizes: {1of4: 4}",
}
"""Of an entry of a GPULayout, by mode."""


def clipped(text: str) -> str:
    """A text as a warning: one line, at most 119 characters.

    API servers drop warnings with control characters in them, without a word.
    """
    return bounded(" ".join(text.split()), LONGEST_WARNING)


def granted(grant: Grant) -> str:
    """Warning: what a request became."""
    given = grant.resource
    amount = given if grant.count == 1 else f"{given}: {grant.count}"
    return clipped(f"{grant.container}: {grant.request} -> {amount} ({grant.reason})")


def unchecked() -> str:
    """Warning: no inventory was given."""
    return clipped("no nodes are known, so it was not checked that one offers these shares")


def waits(ask: Ask, share_class: ShareClass) -> str:
    """Warning: the pod is let in though no node can serve it."""
    return clipped(
        f"{ask.container.name}: no ready node offers {share_class}; the pod waits until one does"
    )


def waits_together() -> str:
    """Warning: the pod is let in though no single node has all of its shares."""
    return clipped("no single ready node offers all of these shares; the pod waits until one does")


def named_node_lacks() -> str:
    """Warning: a pod that is bound to a node by name."""
    return clipped("the node that the pod is bound to offers no such share; it waits until it does")


def unused(written: Written) -> str:
    """Warning: a key that changes nothing."""
    return clipped(f"{written.key} changes nothing: no container that it could apply to asks so")


def unread(key: str, namespace: str) -> str:
    """Warning: one of our keys in a namespace that no policy governs."""
    return clipped(f"{key} is not read: namespace {namespace} has no gpu.sharing/profile label")


def ungranted(name: str, namespace: str) -> str:
    """Warning: a share in a namespace that no policy governs; the API server refuses the pod."""
    return clipped(f"{name} is not granted: namespace {namespace} has no gpu.sharing/profile label")


def misplaced(key: str) -> str:
    """Warning: one of our keys on a workload instead of on its pods."""
    return clipped(f"{key} is not read here: write it below the pod template's metadata")


def meant(near: Near) -> str:
    """Warning: something that its author seems to have meant otherwise."""
    return clipped(str(near))


def not_carried_over(key: str, instead: str) -> str:
    """Warning: another system's key that means nothing here."""
    return clipped(f"{key} is not carried over: {instead}")


def removed(key: str) -> str:
    """Warning: a reserved key was taken off."""
    return clipped(f"{key} was removed: only gpu-sharing writes it")


def cleared(container: str, names: Iterable[str]) -> str:
    """Warning: variables were taken out of a container with a share."""
    return clipped(f"{container}: {', '.join(names)} removed from env: the share decides it")


def hidden(container: str) -> str:
    """Warning: a container without a share wanted to see GPUs."""
    return clipped(f"{container}: NVIDIA_VISIBLE_DEVICES set to void: the container has no share")


def refused(
    ask: Ask, wrong: str, *, expected: str = "", fix: str = "", example: str = ""
) -> PolicyError:
    """A refusal of one container's ask."""
    return PolicyError(
        f"{ask.container.label}: {ask.where}",
        f"{shown(ask.text)} is refused: {wrong}",
        expected=expected,
        fix=fix,
        example=example,
    )


def whole_gpus_denied(ask: Ask, profile: SharingProfile) -> PolicyError:
    """Under ``wholeGPU: deny``."""
    return refused(
        ask,
        f"profile {profile.name} gives no whole GPUs (wholeGPU: deny)",
        expected="a size",
        fix="say how much of a GPU the container needs",
        example=EXAMPLES["fraction"],
    )


def many_gpus_denied(ask: Ask, profile: SharingProfile) -> PolicyError:
    """Under ``multiGPU: deny``, or with a mode that shares."""
    how = (
        f"in mode {ask.want.mode}"
        if ask.want.mode not in (None, Mode.EXCLUSIVE)
        else "(multiGPU: deny)"
    )
    return refused(
        ask,
        f"profile {profile.name} gives no more than one GPU to a container {how}",
        expected="1",
        fix="ask for one GPU, or for a namespace whose profile says multiGPU: exclusive",
        example="nvidia.com/gpu: 1",
    )


def mode_denied(ask: Ask, mode: Mode, profile: SharingProfile) -> PolicyError:
    """A mode that the profile does not let a pod choose."""
    allowed = [m.value for m in Mode if m in profile.permitted_modes]
    return _mode_refused(
        ask,
        f"profile {profile.name} does not allow mode {mode}",
        expected=f"one of {', '.join(allowed)}",
        profile=profile,
    )


def isolation_denied(ask: Ask, mode: Mode, profile: SharingProfile) -> PolicyError:
    """A mode that isolates less than the profile demands."""
    return _mode_refused(
        ask,
        f"mode {mode} gives isolation '{mode.isolation}', and profile {profile.name} demands "
        f"'{profile.spec.min_isolation}' (minIsolation)",
        expected=f"one of {', '.join(profile.modes)}",
        profile=profile,
    )


def _mode_refused(ask: Ask, wrong: str, *, expected: str, profile: SharingProfile) -> PolicyError:
    key = ask.mode_key
    return PolicyError(
        f"{ask.container.label}: {key.where if key else ask.where}",
        f"{shown(str(key) if key else ask.text)} is refused: {wrong}",
        expected=expected,
        fix="ask in an allowed mode, or leave the mode to the profile",
        example=f'gpu.sharing/mode: "{profile.modes[0]}"' if key else EXAMPLES["fraction"],
    )


def pool_denied(ask: Ask, share_class: ShareClass, profile: SharingProfile) -> PolicyError:
    """A share of a pool that is not the profile's."""
    own = profile.spec.pool
    right = ShareClass(
        mode=share_class.mode, size=share_class.size, pool=own, cut_from=share_class.cut_from
    )
    whose = f"pool {share_class.pool}" if share_class.pool else "no pool"
    return refused(
        ask,
        f"the share belongs to {whose}, and profile {profile.name} "
        + (f"uses pool {own}" if own else "uses none"),
        expected=f"a share of {f'pool {own}' if own else 'no pool'}",
        fix="name that one, or ask by nvidia.com/gpu",
        example=f"{right}: 1",
    )


def size_denied(
    ask: Ask, allowed: Iterable[object], field: str, profile: SharingProfile
) -> PolicyError:
    """A size or MIG profile that is not on the profile's list."""
    texts = [str(size) for size in allowed]
    example = EXAMPLES["mig-profile"].replace("1g.10gb", texts[0])
    return refused(
        ask,
        f"profile {profile.name} does not give that size ({field})",
        expected=f"one of {', '.join(texts)}",
        fix="ask for one of them",
        example=example if field == "migProfiles" else EXAMPLES["fraction"],
    )


def too_large(ask: Ask, profile: SharingProfile) -> PolicyError:
    """More of a GPU than any size that the profile allows."""
    sizes = [str(size) for size in profile.sizes or ()]
    return refused(
        ask,
        f"it is more than any size that profile {profile.name} allows",
        expected=f"at most {sizes[-1]} (allowedSizes {', '.join(sizes)})" if sizes else "less",
        fix="ask for less",
        example=EXAMPLES["fraction"],
    )


def too_much_memory(ask: Ask, most_mib: int, profile: SharingProfile) -> PolicyError:
    """More memory than ``memory.max``."""
    return refused(
        ask,
        f"it is more than profile {profile.name} allows (memory.max)",
        expected=f"at most {format_mib(most_mib)}",
        fix="ask for less",
        example=f'gpu.sharing/memory: "{format_mib(most_mib)}"',
    )


def no_multiple(ask: Ask, listed: Iterable[ShareClass]) -> PolicyError:
    """N shares in one container, where no share is N times as large."""
    names = _names(listed)
    return refused(
        ask,
        f"a container gets one share, and there is none {ask.want.number} times as large",
        expected=f"one of {names}" if names else "one share",
        fix="ask for one share that is large enough, or for whole GPUs",
        example=EXAMPLES["fraction"],
    )


def two_shares(ask: Ask, share_class: ShareClass) -> RequestError:
    """A share resource beside an ask that would become another one."""
    return RequestError(
        f"{ask.container.label}: {ask.where}",
        f"{shown(ask.text)} would become {share_class}, and {ask.beside} stands beside it",
        expected="one share for a container",
        fix="keep the one that is meant",
        example=ask.text,
    )


def unknown_nodes(ask: Ask, modes: Iterable[Mode]) -> PolicyError:
    """What only an inventory could tell."""
    example = EXAMPLES["mig-profile"] if Mode.MIG in modes else EXAMPLES["fraction"]
    return refused(
        ask,
        "no nodes are known, so nobody can say which share is large enough",
        expected="an inventory",
        fix="give one (--nodes FILE), or ask in a form that needs none",
        example=example,
    )


def unsatisfiable(
    ask: Ask, modes: Iterable[Mode], profile: SharingProfile, offers: Offers
) -> PolicyError:
    """No ready node that the pod may run on offers what is asked for."""
    listed = list(modes)
    names = _names(c.share_class for mode in listed for c in offers.of(mode, profile.spec.pool))
    return refused(
        ask,
        f"no ready node offers {wanted(ask, listed, profile)} in mode {' or '.join(listed)}"
        + ("" if names else " where the pod may run (nodeSelector, node affinity)"),
        expected=f"what is offered: {names}" if names else "a node that offers such shares",
        fix="ask for what is offered, or have a GPULayout make such shares",
        example=_offered_example(offers, listed, profile),
    )


def apart(ask: Ask, needs: Mapping[ShareClass, Need]) -> PolicyError:
    """Nodes offer each share, but no node offers them all."""
    listed = sorted(needs, key=lambda share_class: share_class.sort_key)
    amounts = ", ".join(f"{share_class}: {needs[share_class].shares}" for share_class in listed)
    return refused(
        ask,
        f"no single ready node that the pod may run on has all of its shares ({amounts})",
        expected="shares that one node offers, since all containers of a pod run on one node",
        fix="ask in one mode and in sizes that one node offers, or split the pod",
        example=EXAMPLES["fraction"],
    )


def wanted(ask: Ask, modes: list[Mode], profile: SharingProfile) -> str:
    """What would have served an ask in these modes, in words."""
    if ask.want.named is not None:
        return f"{ask.want.named}"
    if ask.want.mig_profile is not None:
        return f"MIG profile {ask.want.mig_profile}"
    if ask.want.by_default and modes == [Mode.EXCLUSIVE]:
        return "a whole GPU"
    if ask.want.by_default:
        memory = profile.default_memory_mib
        return f"the default, {format_mib(memory) if memory else profile.default_size},"
    if ask.want.memory_mib is not None:
        also = f" and {ask.want.fraction} of a GPU" if ask.want.fraction else ""
        return f"a share with {format_mib(ask.want.memory_mib)}{also}"
    return f"a share of at least {ask.want.fraction}"


def _offered_example(offers: Offers, modes: Iterable[Mode], profile: SharingProfile) -> str:
    """A share that is offered; where none is, a layout that makes some."""
    listed = list(modes)
    for mode in listed:
        for candidate in reversed(offers.of(mode, profile.spec.pool)):
            return f"{candidate.share_class}: 1"
    pool = f", pool: {profile.spec.pool}" if profile.spec.pool else ""
    return f"gpus: [{{gpus: all, mode: {listed[0]}{_SIZES.get(listed[0], '')}{pool}}}]"


def _names(classes: Iterable[ShareClass]) -> str:
    names = [share_class.resource_name for share_class in classes]
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(names[:_MOST_LISTED]) + more
