"""Pods that tests run on a real node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sharing.cluster.client import Client
from sharing.cluster.kind import PODS
from tests.cluster.box.configuration import IMAGE
from tests.cluster.waiting import eventually


def pod(
    name: str,
    *,
    command: Sequence[str] = (),
    limits: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    restart: str = "Never",
) -> dict[str, Any]:
    """A pod with one container ``main`` that sleeps, or runs a command of busybox.

    It ends at once when it is deleted: busybox as first process does not hear SIGTERM.
    """
    container: dict[str, Any] = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "resources": {"limits": dict(limits or {})},
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
    }
    if command:
        container["command"] = list(command)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {
            "containers": [container],
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 0,
        },
    }


async def reaches(
    client: Client, namespace: str, name: str, *phases: str, timeout_s: float = 30.0
) -> dict[str, Any]:
    """The pod once it is in one of the phases, such as ``Running``.

    Raises:
        NeverHappenedError: It is not; its status is in the message.
    """
    seen: dict[str, Any] = {}

    async def look() -> dict[str, Any] | None:
        seen.update(await client.get(PODS, name, namespace=namespace))
        return seen if seen["status"].get("phase") in phases else None

    try:
        found = await eventually(f"pod {name} is {' or '.join(phases)}", look, timeout_s=timeout_s)
    except AssertionError as error:
        error.add_note(f"its status: {seen.get('status')}")
        raise
    assert found is not None
    return found
