"""Requests: what each container of a pod asks for, whatever form it is written in.

A pod-level size key goes to the containers that ask for a GPU and say no size themselves. If none
asks, it goes to the only app container; with several there is no telling which one is meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sharing.errors import shown
from sharing.names import GRANTS_ANNOTATION, MEMORY, MODE
from webhook.ask import Ask, Wording, ask_of, own_size
from webhook.container import Container, containers_of, mapping
from webhook.errors import RequestError
from webhook.foreign import OURS_ALONE, Vocabulary
from webhook.grant import Recorded, read_record
from webhook.keys import NO_KEYS, SIZE_KEYS, PodKeys, Written, read_keys
from webhook.nearmiss import Near, near_amount, near_misses
from webhook.resources import (
    NO_RESOURCES,
    GpuResources,
    is_gpu_key,
    read_foreign,
    read_resource,
    read_resources,
)
from webhook.translate import Lost, asked_elsewhere, lost_of

MOST_ASKERS: Final = 512
"""Containers of one pod that may name GPU resources."""


class PodRequest(NamedTuple):
    """What a pod asks for."""

    containers: tuple[Container, ...]
    asks: tuple[Ask, ...] = ()
    keys: PodKeys = NO_KEYS
    unused: tuple[Written, ...] = ()
    """Keys that change nothing, since nobody asks for a GPU or everybody says it themselves."""
    counting: tuple[Container, ...] = ()
    """Containers that name the accounting resource, which only we write."""
    foreign: Mapping[str, tuple[str, ...]] = {}
    """Other systems' resources by container path."""
    lost: tuple[Lost, ...] = ()
    """What of other systems' words is not carried over."""
    near: tuple[Near, ...] = ()
    """What nobody reads, and looks as if its author meant a key of ours."""

    @property
    def concerns_us(self) -> bool:
        """Whether there is anything in it for us."""
        return bool(self.asks or self.keys.found or self.counting or self.foreign or self.near)


def read_request(pod: dict[str, Any], vocabulary: Vocabulary = OURS_ALONE) -> PodRequest:
    """What a pod asks for.

    Args:
        pod: The pod.
        vocabulary: Other systems' words that are understood.

    Raises:
        RequestError: It asks in a way that means nothing; container and field are named.
    """
    containers = containers_of(pod)
    annotations = mapping(mapping(pod, "metadata"), "annotations")
    keys = read_keys(annotations, {c.name for c in containers}) if annotations else NO_KEYS
    found = _read_all(containers, vocabulary)
    counting = tuple(container for container, resources in found if resources.counts)
    near = _near(found, keys, annotations, vocabulary)
    if keys is NO_KEYS and not vocabulary.systems:
        plain = [Wording(c, resources, {}, None, None) for c, resources in found if resources.named]
        asks = [ask for ask in map(ask_of, plain) if ask is not None]
        _check_names(asks, containers)
        return PodRequest(tuple(containers), tuple(asks), counting=counting, near=near)
    record = read_record(annotations.get(GRANTS_ANNOTATION)) if keys.status else {}
    wanted = [
        (container, *_original(resources, record.get(container.name), vocabulary))
        for container, resources in found
    ]
    foreign = asked_elsewhere(wanted, annotations, vocabulary)
    askers = [(c, bool(r.named) or was or c.path in foreign) for c, r, was in wanted]
    shared = _shared_to(keys, askers)
    asks = []
    for (container, resources, was), (_, present) in zip(wanted, found, strict=True):
        wording = Wording(
            container,
            resources,
            keys.by_container.get(container.name, {}),
            keys.pod.get(MODE),
            own_size(keys.pod) if container.path in shared else None,
            foreign.get(container.path),
        )
        ask = ask_of(wording)
        if ask is None and was:
            # A record that claims that nothing was asked explains nothing.
            ask = ask_of(wording._replace(resources=present))
        if ask is not None:
            asks.append(ask)
    _check_names(asks, containers)
    return PodRequest(
        containers=tuple(containers),
        asks=tuple(asks),
        keys=keys,
        unused=_unused(keys, asks) if keys.found else (),
        counting=counting,
        foreign={c.path: tuple(r.foreign) for c, r in found if r.foreign},
        lost=lost_of(pod, wanted, asks, foreign, vocabulary=vocabulary),
        near=near,
    )


def _read_all(
    containers: Iterable[Container], vocabulary: Vocabulary
) -> list[tuple[Container, GpuResources]]:
    """Each container with what it names; bounded, since other reviews wait meanwhile."""
    found, naming = [], 0
    for container in containers:
        resources = _resources(container, vocabulary)
        found.append((container, resources))
        naming += resources is not NO_RESOURCES
        if naming > MOST_ASKERS:
            raise RequestError(
                f"{container.field}.resources",
                f"more than {MOST_ASKERS} containers of the pod name GPU resources",
                expected=f"at most {MOST_ASKERS}, which is more than a node has shares",
                fix="split the pod",
                example="nvidia.com/gpu: 1",
            )
    return found


def _near(
    found: Sequence[tuple[Container, GpuResources]],
    keys: PodKeys,
    annotations: Mapping[str, Any],
    vocabulary: Vocabulary,
) -> tuple[Near, ...]:
    near = [one for _, resources in found if resources.near for one in resources.near]
    if annotations:
        near += near_misses(annotations, [container for container, _ in found], vocabulary)
    if keys is not NO_KEYS:
        amounts = (asked.get(MEMORY) for asked in (keys.pod, *keys.by_container.values()))
        small = [near_amount(str(one), one.text) for one in amounts if one is not None]
        near += [one for one in small if one is not None]
    return tuple(sorted(set(near))) if near else ()


def _resources(container: Container, vocabulary: Vocabulary) -> GpuResources:
    # Most containers name no GPU; they must cost next to nothing.
    if "resources" not in container.raw:
        return NO_RESOURCES
    try:
        return read_resources(container, vocabulary)
    except RequestError as error:
        raise _in(container, error) from error


def _in(container: Container, error: RequestError) -> RequestError:
    return RequestError(
        f"{container.label}: {error.subject}",
        error.wrong,
        expected=error.expected,
        fix=error.fix,
        example=error.example,
    )


def _original(
    resources: GpuResources, claim: Recorded | None, vocabulary: Vocabulary
) -> tuple[GpuResources, bool]:
    """What the container named before an earlier pass of ours, and whether there was one.

    The record only counts where the container holds exactly what it says we gave. It cannot make
    a share larger: what it claims was asked is decided like any other request.
    """
    if claim is None or not _matches(resources, claim):
        return resources, False
    named, foreign = {}, {}
    for name, text in claim.resources.items():
        try:
            if vocabulary.systems and vocabulary.reads(name):
                foreign[name] = read_foreign(name, text, "", "")
                continue
            found = read_resource(name, text, "", "") if is_gpu_key(name) else None
        except RequestError:
            return resources, False
        if found is None:
            return resources, False
        named[name] = found
    return GpuResources(named=named, foreign=foreign), True


def _matches(resources: GpuResources, claim: Recorded) -> bool:
    given = resources.named.get(claim.resource)
    others = {name: r.text for name, r in resources.named.items() if name != claim.resource}
    beside = {name: text for name, text in claim.resources.items() if name != claim.resource}
    return given is not None and given.amount == claim.count and others in ({}, beside)


def _shared_to(keys: PodKeys, askers: Iterable[tuple[Container, bool]]) -> frozenset[str]:
    """Paths of the containers that a pod-level size key goes to."""
    size = own_size(keys.pod)
    if size is None:
        return frozenset()
    listed = list(askers)
    asking = [
        container
        for container, asks in listed
        if asks or own_size(keys.by_container.get(container.name, {})) is not None
    ]
    if not asking:
        asking = [container for container, _ in listed if not container.is_init]
        if len(asking) > 1:
            raise _ambiguous(size, asking)
    return frozenset(container.path for container in asking)


def _ambiguous(key: Written, containers: list[Container]) -> RequestError:
    names = ", ".join(container.name or container.field for container in containers)
    first = min((container.name for container in containers if container.name), default="main")
    return RequestError(
        key.where,
        f"the pod has several containers ({names}), and none asks for a GPU",
        expected="one container that asks, by nvidia.com/gpu: 1 or by a key of its own",
        fix="say which container is meant",
        example=f'{first}.{key.key}: "{key.text}"',
    )


def _check_names(asks: Iterable[Ask], containers: Iterable[Container]) -> None:
    """Grants go by container name, so an asker's name must tell it from all others."""
    names = Counter(container.name for container in containers)
    for ask in asks:
        name = ask.container.name
        if not name:
            raise RequestError(
                f"{ask.container.field}.name",
                "a container that asks for a GPU has no name",
                expected="a name",
                fix="give it one",
                example="name: main",
            )
        if names[name] > 1:
            raise RequestError(
                f"{ask.container.field}.name",
                f"{shown(name)} names two containers, and one of them asks for a GPU",
                expected="names that differ, init containers included",
                fix="rename one of them",
                example="name: main",
            )


def _unused(keys: PodKeys, asks: Iterable[Ask]) -> tuple[Written, ...]:
    """Keys that change nothing, since nobody asks or everybody says it themselves."""
    listed = list(asks)
    used = {ask.where for ask in listed}
    askers = {ask.container.name for ask in listed}
    unused = [
        written
        for key, written in keys.pod.items()
        if (written.where not in used if key in SIZE_KEYS else not listed)
    ]
    for name, asked in keys.by_container.items():
        if name not in askers:
            unused += asked.values()
    return tuple(unused)
