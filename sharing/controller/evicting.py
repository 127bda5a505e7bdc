"""Evictions: at a limited rate, within disruption budgets, told on the pod and its owner."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import structlog

from sharing.cluster.client import Client
from sharing.cluster.errors import ApiError, NotFoundError, TooManyRequestsError
from sharing.cluster.events import EventRecorder
from sharing.controller.faults import Eviction, due_now
from sharing.controller.metrics import ControllerMetrics, EvictionResult
from sharing.controller.pods import PodSeen

_log = structlog.get_logger()


class Evictor:
    """Evicts pods from faulty GPUs, and those that take their neighbours' memory.

    Args:
        client: The connection.
        events: Where it is told.
        metrics: Where it is counted.
        per_minute: How many pods may be evicted within a minute.
    """

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        metrics: ControllerMetrics,
        *,
        per_minute: int,
    ) -> None:
        self._client = client
        self._events = events
        self._metrics = metrics
        self._per_minute = per_minute
        self._recent: deque[float] = deque(maxlen=per_minute)
        self.wait_s = float("inf")
        """Seconds until the rate allows more."""

    def due(self, wanted: Sequence[Eviction]) -> tuple[Eviction, ...]:
        """Those that the rate allows now."""
        now = time.monotonic()
        due, self.wait_s = due_now(wanted, tuple(self._recent), now, self._per_minute)
        self._metrics.waiting_evictions.set(len(wanted))
        return due

    async def evict(self, eviction: Eviction, pod: PodSeen) -> None:
        """Evict one pod.

        Raises:
            ApiError: It was not done; a disruption budget may have refused it.
        """
        try:
            await self._client.evict(pod.name, namespace=pod.namespace, uid=pod.uid)
        except NotFoundError:
            return  # gone already
        except TooManyRequestsError as error:
            self._metrics.count_eviction(EvictionResult.BUDGET)
            said = f"{eviction.reason}; a disruption budget keeps the pod there: {error.wrong}"
            self._tell(pod, "EvictionBlocked", said)
            raise
        except ApiError:
            self._metrics.count_eviction(EvictionResult.FAILED)
            raise
        self._recent.append(time.monotonic())
        self._metrics.count_eviction(EvictionResult.DONE)
        self._tell(
            pod,
            eviction.event,
            f"{eviction.reason}; pod {pod.name} was evicted, as its "
            f"namespace's profile says ({eviction.policy}: evict)",
        )
        _log.info("pod was evicted", namespace=pod.namespace, pod=pod.name, reason=eviction.reason)

    def _tell(self, pod: PodSeen, reason: str, message: str) -> None:
        self._events.record(pod.reference, reason, message, warning=True)
        if pod.owner:
            self._events.record(pod.owner, reason, message, warning=True)
