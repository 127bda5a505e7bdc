"""Many pods that come and go at random on one node, and the books after every step."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sharing.cluster.cache import Cache, whole
from sharing.cluster.kind import PODS
from sharing.mode import Mode
from tests.cluster.waiting import eventually
from tests.support import books
from tests.support.forms import IMAGE
from tests.support.trials import PodKey, Trial

_FRACTIONS: Final = ("1/4", "1/2")
_MOST_AT_ONCE: Final = 6
_MOST_ALIVE: Final = 24
"""A few more than the node has shares, so that some wait."""
_STEP_S: Final = 40.0


@dataclass(slots=True)
class Crowd:
    """What came of the pods."""

    created: int = 0
    steps: int = 0
    ran: int = 0
    waited: int = 0
    """Pods that were ended before the node had a share for them."""
    failed: dict[str, int] = field(default_factory=dict)
    """By reason."""


async def come_and_go(trial: Trial, pods: int, seed: int) -> Crowd:
    """Create so many pods in all, and end them; every account agrees after each step.

    Args:
        trial: The node; nothing else may use it meanwhile.
        pods: How many.
        seed: Decides who comes and goes when.

    Raises:
        AssertionError: Accounts differ, or a share was handed out twice at any moment.
    """
    draw, found = random.Random(seed), Crowd()
    alive: dict[PodKey, str] = {}
    async with trial.watched(), Cache(trial.client, PODS, whole) as cache:
        await cache.wait_synced(timeout_s=20)
        while found.created < pods or alive:
            come = min(draw.randint(0, _MOST_AT_ONCE), pods - found.created)
            go = draw.randint(0, _MOST_AT_ONCE) if len(alive) < _MOST_ALIVE else _MOST_AT_ONCE
            leaving = draw.sample(sorted(alive), min(go, len(alive)))
            arriving = [_manifest(found.created + n, draw, seed) for n in range(come)]
            found.created += come
            await asyncio.gather(
                trial.delete(*leaving), *(trial.create(manifest) for manifest in arriving)
            )
            for key in leaving:
                _count(found, alive.pop(key))
            alive |= {_key(manifest): "" for manifest in arriving}
            alive = await _at_rest(cache, alive)
            await _agree(trial, found.steps)
            found.steps += 1
    return found


def _count(found: Crowd, how: str) -> None:
    if how == "Running":
        found.ran += 1
    elif how == "Pending":
        found.waited += 1
    else:
        found.failed[how] = found.failed.get(how, 0) + 1


def _manifest(number: int, draw: random.Random, seed: int) -> dict[str, Any]:
    mode, fraction = draw.choice(tuple(Mode)), draw.choice(_FRACTIONS)
    return {
        "metadata": {
            "name": f"c{seed}-{number}", "namespace": mode.value,
            "annotations": {"gpu.sharing/fraction": fraction},
        },
        "spec": {"containers": [{"name": "main", "image": IMAGE}]},
    }  # fmt: skip


def _key(manifest: Mapping[str, Any]) -> PodKey:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


async def _at_rest(cache: Cache[dict[str, Any]], alive: Mapping[PodKey, str]) -> dict[PodKey, str]:
    """How each pod is, once none of them changes any more: its phase, or why it failed."""

    def all_rest(_: object) -> bool:
        return all(_how(cache.get(name, namespace=space)) for space, name in alive)

    async with asyncio.timeout(_STEP_S):
        await cache.until(all_rest)
    return {key: _how(cache.get(key[1], namespace=key[0])) for key in alive}


def _how(pod: Mapping[str, Any] | None) -> str:
    """Empty while it is on its way."""
    status = (pod or {}).get("status") or {}
    phase = status.get("phase")
    if phase == "Failed":
        return str(status.get("reason"))
    waits = any(
        each["type"] == "PodScheduled" and each["status"] == "False"
        for each in status.get("conditions") or ()
    )
    return "Pending" if waits and phase == "Pending" else "Running" if phase == "Running" else ""


async def _agree(trial: Trial, step: int) -> None:
    """Kubelet, PodResources, Node, agent and NVML say the same.

    A pod that waits may get a share between two looks, so they are given a moment.
    """
    said: list[str] = []

    async def agree() -> bool:
        said[:] = books.disagreements(await trial.books())
        return not said

    try:
        await eventually(f"the books agree in step {step}", agree, timeout_s=_STEP_S)
    except AssertionError as error:
        error.add_note("\n".join(said))
        raise
