"""What a pod needs from its node.

Rules: init containers run one after another, so the largest counts; a sidecar (an init
container with restartPolicy Always) runs from its turn on, beside everything after it; the
pod's overhead is added to the whole (KEP-753, "Resources calculation for scheduling");
pod-level requests stand for cpu and memory (KEP-2837).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from embedded.scheduler.amounts import CPU, MEMORY, Amounts, added, amounts_of, widest

_POD_LEVEL: Final = (CPU, MEMORY)
# kube-scheduler scores a container that asks for nothing as if it asked for this much
# (pkg/scheduler/util/pod_resources.go), lest all of them go to one node.
_SCORED: Final = {CPU: 100, MEMORY: 200 * 1024 * 1024}


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """Whether an init container goes on running beside the app containers."""
    return container.get("restartPolicy") == "Always"


def requests_of(container: Mapping[str, Any]) -> dict[str, int]:
    """What one container requests; a limit without a request is a request.

    Raises:
        QuantityError: If a value is no quantity.
    """
    resources = container.get("resources") or {}
    return amounts_of(resources.get("limits")) | amounts_of(resources.get("requests"))


def demand_of(spec: Mapping[str, Any]) -> dict[str, int]:
    """What a pod with this spec needs in all.

    Raises:
        QuantityError: If a value is no quantity.
    """
    return _total(spec, requests_of)


def scored_demand_of(spec: Mapping[str, Any]) -> dict[str, int]:
    """The cpu and memory that scores count for the pod.

    Raises:
        QuantityError: If a value is no quantity.
    """

    def at_least(container: Mapping[str, Any]) -> dict[str, int]:
        asked = requests_of(container)
        return {name: asked.get(name, amount) for name, amount in _SCORED.items()}

    return _total(spec, at_least)


def _total(spec: Mapping[str, Any], ask: Any) -> dict[str, int]:
    running: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or []:
        if is_sidecar(container):
            running = added(running, ask(container))
            peak = widest(peak, running)
        else:
            peak = widest(peak, added(running, ask(container)))
    apps = added(running, *(ask(container) for container in spec.get("containers") or []))
    total = widest(peak, apps)
    whole_pod = requests_of(spec)
    total |= {name: whole_pod[name] for name in _POD_LEVEL if name in whole_pod}
    return added(total, amounts_of(spec.get("overhead")))
