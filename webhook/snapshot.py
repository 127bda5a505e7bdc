"""What a review is decided from: one immutable value, swapped as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sharing.inventory import Inventory
from webhook.policies import BrokenProfile, Policies


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Namespaces, profiles and nodes as they are known now."""

    policies: Policies = field(default_factory=Policies)
    inventory: Inventory | None = None
    """None where nothing is known about nodes."""

    @property
    def broken(self) -> tuple[BrokenProfile, ...]:
        """Profiles that exist and cannot be used, by name."""
        found = [p for p in self.policies.profiles.values() if isinstance(p, BrokenProfile)]
        return tuple(sorted(found, key=lambda profile: profile.name))


Source = Callable[[], Snapshot | None]
"""The newest snapshot; None before everything was read once. Neither waits nor fetches."""
