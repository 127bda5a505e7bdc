"""What one share class offers now, and who has already heard of it.

Outlives the servers that tell it: a class gets a new server at each registration, the offer
stays. Versions count up with each change, so that a stream knows whether it is behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sharing.mode import Mode
from sharing.plugin.binding import ShareBinding


class Offer:
    """The shares of one class.

    Args:
        resource: Its extended resource name.
        mode: How its shares are made.
    """

    def __init__(self, resource: str, mode: Mode) -> None:
        self.resource = resource
        self.mode = mode
        self.version = 0
        self._listed: dict[str, ShareBinding] = {}
        self._held: dict[str, ShareBinding] = {}
        self._changed = asyncio.Event()

    @property
    def listed(self) -> tuple[ShareBinding, ...]:
        """What the kubelet is told, by device id."""
        return tuple(self._listed[one] for one in sorted(self._listed))

    @property
    def known(self) -> Mapping[str, ShareBinding]:
        """What is answered for: everything listed, and what pods hold beyond that."""
        return self._held | self._listed

    def change(self, listed: Sequence[ShareBinding], held: Sequence[ShareBinding]) -> bool:
        """Offer these from now on; whether the kubelet has to hear of it."""
        self._held = {one.device_id: one for one in held}
        new = {one.device_id: one for one in listed}
        seen = {one: _as_seen(binding) for one, binding in self._listed.items()}
        changed = seen != {one: _as_seen(binding) for one, binding in new.items()}
        self._listed = new
        if changed:
            self.version += 1
            self.wake()
        return changed

    def worsen(self, unfit: Callable[[ShareBinding], bool]) -> bool:
        """Take what is unfit for unhealthy from now on; whether the kubelet has to hear of it."""
        ill = {
            one: replace(binding, healthy=False)
            for one, binding in self._listed.items()
            if binding.healthy and unfit(binding)
        }
        if ill:
            self._listed |= ill
            self.version += 1
            self.wake()
        return bool(ill)

    def wake(self) -> None:
        """Let all waiters look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, met: Callable[[], bool]) -> None:
        """Wait until a condition holds that changes only with a wake-up."""
        while not met():
            await self._changed.wait()


def _as_seen(binding: ShareBinding) -> tuple[bool, int | None]:
    """The part of a binding that the kubelet is told, besides its id."""
    return (binding.healthy, binding.numa_node)
