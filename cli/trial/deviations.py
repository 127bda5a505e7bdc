"""Where facts and scenario differ: pure, one sentence a deviation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from cli.trial.facts import Facts, GpuFacts, PodFacts
from cli.trial.scenario import Expectation, Scenario

_GPU_FILE: Final = re.compile(r"/dev/nvidia[0-9]+( |$)", re.ASCII)


def deviations(scenario: Scenario, facts: Facts) -> tuple[str, ...]:
    """Everything that is not as the scenario states, and every share handed out twice."""
    return tuple(_all(scenario, facts))


def _all(scenario: Scenario, facts: Facts) -> Iterator[str]:
    by_key = {pod.key: pod for pod in facts.pods}
    for wanted in scenario.pods:
        pod = by_key.get(wanted.key)
        if pod is None:
            yield f"{wanted.key}: was never created"
        else:
            yield from (f"{pod.key}: {text}" for text in _pod(wanted.expect, pod))
    yield from _shares(facts)


def _pod(expect: Expectation, pod: PodFacts) -> Iterator[str]:
    if expect.verdict is not None and pod.verdict != expect.verdict:
        yield f"verdict is {pod.verdict}, expected {expect.verdict} ({pod.message or 'no message'})"
        if "deny" in (pod.verdict, expect.verdict):
            return  # all else follows from it
    if expect.code is not None and pod.code != expect.code:
        yield f"code is {pod.code}, expected {expect.code}"
    if expect.says is not None and expect.says not in pod.message:
        yield f"message {pod.message!r} does not say {expect.says!r}"
    if expect.phase is not None and pod.phase != expect.phase:
        yield f"phase is {pod.phase}, expected {expect.phase} ({pod.message or 'no message'})"
    if expect.containers is not None:
        yield from _containers(expect.containers, pod)


def _containers(expected: dict[str, str], pod: PodFacts) -> Iterator[str]:
    for container in pod.containers:
        resource = expected.get(container.name)
        if container.resource != resource:
            yield (
                f"container {container.name} has {container.resource or 'no GPU resource'}, "
                f"expected {resource or 'none'}"
            )
        if resource and pod.phase == "Running" and not container.device_ids:
            yield f"container {container.name} holds no device"
        if resource is None and container.device_ids:
            yield f"container {container.name} holds devices that it did not ask for"
    for name in sorted(set(expected) - {container.name for container in pod.containers}):
        yield f"has no container {name}"


def _shares(facts: Facts) -> Iterator[str]:
    """No device is held by two pods, and each GPU's books agree with its layout."""
    holders: dict[tuple[str, str], set[str]] = {}
    for pod in facts.pods:
        for container in pod.containers:
            for device_id in container.device_ids:
                holders.setdefault((pod.node or "", device_id), set()).add(pod.key)
    for (node, device_id), keys in sorted(holders.items()):
        if len(keys) > 1:
            yield f"device {device_id} of node {node} is held by {' and '.join(sorted(keys))}"
    for gpu in facts.gpus:
        yield from _books(gpu)
    yield from _device_files(facts)


def _device_files(facts: Facts) -> Iterator[str]:
    """A container sees a device file for each of its GPUs, always the same, and no other's."""
    users: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    for pod in facts.pods:
        for container in pod.containers:
            files = [path for path in container.device_nodes if _GPU_FILE.match(path)]
            if container.device_nodes and len(files) != len(container.gpus):
                yield (
                    f"{pod.key}: container {container.name} has {len(container.gpus)} GPUs, "
                    f"but sees {' '.join(files) or 'the file of none'}"
                )
            elif len(files) == 1:
                users.setdefault((pod.node or "", files[0]), set()).add(container.gpus)
    for (node, path), gpus in sorted(users.items()):
        if len(gpus) > 1:
            yield f"{path} of node {node} is seen by containers of different GPUs"


def _books(gpu: GpuFacts) -> Iterator[str]:
    twins = [
        device_id
        for device_id, count in Counter(share.device_id for share in gpu.shares).items()
        if count > 1
    ]
    if twins:
        yield f"GPU {gpu.index} of node {gpu.node} offers {twins[0]} twice"
