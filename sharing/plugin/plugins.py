"""All share classes of a node at one kubelet: who appears, changes, disappears.

The one door for the agent: it says which bindings exist, this module sees to it that the kubelet
knows, whatever restarts meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sharing.plugin.binding import ShareBinding
from sharing.plugin.settings import AnswerSettings, Patience

WhyNotReady = Callable[[ShareBinding], str | None]
"""Why a container that holds this share cannot start yet; None when it can.

Asked from PreStartContainer only, whose error lets the container wait and is retried. Must
answer at once.
"""


class ClassState(StrEnum):
    """Where a share class stands with the kubelet."""

    WAITING = "waiting"
    """No kubelet socket, or the last try failed; see the reason."""
    REGISTERING = "registering"
    SERVING = "serving"
    """Registered and the kubelet listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassStatus:
    """One share class at the kubelet, as it is now."""

    resource: str
    state: ClassState
    reason: str
    healthy: int
    unhealthy: int
    registrations: int
    """How often it was registered since the agent started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What became of one :meth:`DevicePlugins.advertise`."""

    delivered: tuple[str, ...]
    """Resources whose new list left on a stream that the kubelet holds open."""
    pending: tuple[str, ...]
    """Resources at which no kubelet listens now; it hears the list when it registers."""


class DevicePlugins:
    """Serves every share class of one node to its kubelet.

    Args:
        socket_dir: The kubelet's folder of device-plugin sockets.
        cdi_dir: Where CDI specs go; None where no runtime reads them.
        settings: How to answer.
        why_not_ready: Asked before a container with an MPS share starts.
        links: NVLink or PCIe closeness of GPU pairs, higher is closer; see ``preference``.
        patience: Deadlines.
    """

    def __init__(
        self,
        socket_dir: Path,
        *,
        cdi_dir: Path | None,
        settings: AnswerSettings | None = None,
        why_not_ready: WhyNotReady | None = None,
        links: Mapping[frozenset[str], int] | None = None,
        patience: Patience | None = None,
    ) -> None: ...

    async def start(self) -> None:
        """Begin to watch for the kubelet. Does not wait for it."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Close all servers. Pods keep what they hold; CDI specs stay for their restarts."""
        raise NotImplementedError

    async def advertise(
        self, bindings: Sequence[ShareBinding], *, held: Sequence[ShareBinding] = ()
    ) -> Delivery:
        """Make the kubelet's view these bindings, all classes at once.

        CDI specs are on disk before a device is listed. Classes that disappear send an empty
        list first. Never waits for an absent kubelet.

        Args:
            bindings: Everything to offer, unhealthy shares included.
            held: Shares that pods still hold though they are offered no longer. Their CDI specs
                stay, and their class stays registered (with them left out) so that their
                containers can restart.

        Raises:
            PluginError: Two bindings have one device id, or a CDI spec cannot be written; then
                nothing changed for the kubelet.
        """
        raise NotImplementedError

    def status(self) -> tuple[ClassStatus, ...]:
        """Every class, by resource name."""
        raise NotImplementedError

    async def wait_serving(self, timeout_s: float) -> bool:
        """Wait until the kubelet listens to every class; False when time ran out."""
        raise NotImplementedError
