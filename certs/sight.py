"""What one replica has seen, and for how long without interruption.

Waiting "until every API server uses the patched bundle" cannot go by a date in the
Secret: clocks jump, and they differ between replicas. Each replica counts for itself, on
its monotonic clock, how long it has seen things as they are. A restart begins the count
anew, which costs a minute and never safety.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from certs.bundle import Bundle
from certs.leaf import Leaf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography import x509

    from certs.secret import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One webhook configuration of ours, as read.

    Attributes:
        kind: ``MutatingWebhookConfiguration`` or ``ValidatingWebhookConfiguration``.
        name: Its name.
        version: Its resourceVersion, which a patch has to meet.
        generation: Changes with every change of its content.
        bundles: The ``caBundle`` of each of its webhooks, in order, as bytes.
        webhooks: The names of its webhooks, in order.
        hosts: The name that API servers ask for at each of them; empty where unknown.
    """

    kind: str
    name: str
    version: str
    generation: str
    bundles: tuple[bytes, ...]
    webhooks: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What this replica serves, and the authority that vouches for it."""

    leaf: Leaf
    authority: x509.Certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One replica's memory of what it saw; `look` gives the next one.

    Attributes:
        at_s: Monotonic time of the last look, seconds.
        generations: The configurations as they were then.
        held_since_s: Since when each authority (by fingerprint) was seen in every bundle.
        trusted_since_s: The same, counted anew whenever a configuration changed.
        current: Fingerprint of the current leaf then.
        current_since_s: Since when it was the current one.
        served: What this replica serves.
    """

    at_s: float = 0.0
    generations: tuple[tuple[str, str, str], ...] = ()
    held_since_s: Mapping[str, float] = field(default_factory=dict)
    trusted_since_s: Mapping[str, float] = field(default_factory=dict)
    current: str = ""
    current_since_s: float = 0.0
    served: Served | None = None

    def look(
        self,
        stored: Stored,
        configurations: tuple[Configuration, ...],
        *,
        at_s: float,
        cached: tuple[Configuration, ...] = (),
        patience_s: float = math.inf,
    ) -> Sight:
        """The memory after one more look.

        A configuration that changed interrupts the stricter count for every authority, even
        where they are in it before and after: between two looks they may have been gone. An
        authority that an API server's cache lacks interrupts both, and so does a time without a
        look: that of an etcd or a network which is away, and after which API servers catch up.

        Args:
            stored: The Secret.
            configurations: As they are.
            at_s: Monotonic time, seconds.
            cached: As an API server's cache has them; nothing where none was asked.
            patience_s: After so long without a look nothing that was seen before counts.
        """
        watched = at_s - self.at_s <= patience_s
        generations = tuple((one.kind, one.name, one.generation) for one in configurations)
        held = self.held_since_s if watched else {}
        before = self.trusted_since_s if watched and generations == self.generations else {}
        live = [bundle.fingerprints for bundle in live_bundles((*configurations, *cached))]
        everywhere = [
            one for one in sorted(stored.trusted.fingerprints) if all(one in each for each in live)
        ]
        current = stored.current.fingerprint if stored.current else ""
        return Sight(
            at_s=at_s,
            generations=generations,
            held_since_s={one: held.get(one, at_s) for one in everywhere},
            trusted_since_s={one: before.get(one, at_s) for one in everywhere},
            current=current,
            current_since_s=self.current_since_s if current == self.current else at_s,
            served=self.served,
        )

    def held_for_s(self, authority: str) -> float:
        """Seconds for which every bundle was seen to hold an authority; -1 if one does not."""
        since = self.held_since_s.get(authority)
        return -1.0 if since is None else self.at_s - since

    def trusted_for_s(self, authority: str) -> float:
        """The same since the last change of a configuration, so that nothing was missed."""
        since = self.trusted_since_s.get(authority)
        return -1.0 if since is None else self.at_s - since

    @property
    def current_for_s(self) -> float:
        """Seconds for which the current leaf has been the current one."""
        return self.at_s - self.current_since_s


def is_changing(stored: Stored, served: Served | None) -> bool:
    """Whether it matters by which bundles API servers call: a leaf is to replace another."""
    if stored.next is not None:
        return True
    return served is not None and stored.current not in {None, served.leaf}


def live_bundles(configurations: tuple[Configuration, ...]) -> tuple[Bundle, ...]:
    """What each entry of each configuration trusts, garbage counting as nobody."""
    return tuple(Bundle.salvage(pem) for one in configurations for pem in one.bundles)
