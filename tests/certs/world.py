"""A cluster in a nutshell: one Secret, two webhook configurations, API servers that lag,
and replicas that read, decide and write in separate moments and may die in between.

Time here is a number. API servers use any version of a configuration that was current
within the last `PROPAGATION_S` seconds, or longer ago where they lag, which their caches show; each
replica looks at least every `POLL_S`.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from certs.bundle import Bundle
from certs.leaf import find_faults, fingerprint
from certs.rotation import Situation, carry_out, next_step
from certs.schedule import RotationSettings
from certs.secret import Stored, read_secret, write_secret
from certs.serving import choose_served
from certs.sight import Configuration, Sight, is_changing, live_bundles
from certs.step import Act, Make, Patch, Rest, Step, Wait, Write

NAMES = ("gpu-sharing-webhook.gpu-sharing.svc", "gpu-sharing-webhook")
PROPAGATION_S = 60.0
POLL_S = 30.0
HAIR_S = 0.001  # sums of floats differ by less
SETTINGS = RotationSettings(
    names=NAMES,
    life=timedelta(days=30),
    propagation=timedelta(seconds=PROPAGATION_S),
    settle=timedelta(seconds=240),
    overlap=timedelta(hours=24),
)
START = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


@dataclass
class Version:
    """What one configuration held from one moment to another, and who wrote it."""

    bundles: tuple[bytes, ...]
    since_s: float
    until_s: float | None = None
    ours: bool = True

    def holds(self, authority: str) -> bool:
        return all(authority in Bundle.salvage(pem).fingerprints for pem in self.bundles)


@dataclass
class Kept:
    """One configuration in the API server, with its past."""

    name: str
    entries: int
    versions: list[Version] = field(default_factory=list)
    number: int = 0

    @property
    def live(self) -> Version | None:
        return self.versions[-1] if self.versions and self.versions[-1].until_s is None else None


@dataclass
class Replica:
    """One process: its memory, what it read, and what it is about to do."""

    name: int
    sight: Sight = field(default_factory=Sight)
    read: tuple[Configuration, ...] | None = None
    pending: tuple[Step, int, datetime] | None = None
    looked_s: float = 0.0
    last: Step | None = None


class World:
    """Everything at once; each method is one thing that may happen."""

    def __init__(
        self,
        *,
        replicas: int,
        seed: int = 0,
        settings: RotationSettings = SETTINGS,
        lag_s: float = 0.0,
        patience_s: float = math.inf,
    ) -> None:
        self.settings = settings
        self.lag_s, self.patience_s = lag_s, patience_s
        self.now_s = 1000.0
        self.offset = timedelta()
        self.secret: dict[str, Any] | None = {"metadata": {"name": "certs"}, "type": "Opaque"}
        self.secret_version = 1
        self.kept = [Kept("pods", 2), Kept("templates", 1)]
        for one in self.kept:
            self.put(one, tuple(b"" for _ in range(one.entries)), ours=False)
        self.replicas = [Replica(index) for index in range(replicas)]
        self.random = random.Random(seed)
        self.conflicts = 0
        self.most_authorities = 0
        self.acts: list[Act] = []
        self.given_up: frozenset[str] = frozenset()

    # -- what the outside does

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.now_s) + self.offset

    def put(self, kept: Kept, bundles: tuple[bytes, ...], *, ours: bool) -> None:
        self.drop(kept)
        kept.number += 1
        kept.versions.append(Version(bundles, self.now_s, ours=ours))
        for pem in bundles:
            if ours:
                self.most_authorities = max(self.most_authorities, len(Bundle.salvage(pem)))

    def drop(self, kept: Kept) -> None:
        if kept.live is not None:
            kept.live.until_s = self.now_s
        kept.versions = [one for one in kept.versions if self.in_use(one)]

    def in_use(self, version: Version) -> bool:
        oldest_s = self.now_s - max(PROPAGATION_S, self.lag_s) + HAIR_S
        return version.until_s is None or version.until_s > oldest_s

    def cached(self, kept: Kept) -> tuple[bytes, ...]:
        """What an API server that lags calls by."""
        then_s = self.now_s - self.lag_s
        known = [one for one in kept.versions if one.since_s <= then_s]
        return known[-1].bundles if known else (b"",)

    def write(self, secret: dict[str, Any] | None) -> None:
        self.secret = secret
        self.secret_version += 1

    @property
    def stored(self) -> Stored:
        return read_secret(self.secret)

    # -- what a replica does

    def read_bundles(self, replica: Replica) -> None:
        replica.read = tuple(
            _configuration(one, one.live.bundles) for one in self.kept if one.live is not None
        )

    def decide(self, replica: Replica) -> Step:
        """Read the Secret, swap if that is right, and decide; nothing is written yet."""
        if replica.read is None:
            self.read_bundles(replica)
        configurations, replica.read = replica.read or (), None
        cached: tuple[Configuration, ...] = ()
        if is_changing(self.stored, replica.sight.served):
            cached = tuple(_configuration(one, self.cached(one)) for one in self.kept)
        sight = replica.sight.look(
            self.stored,
            configurations,
            at_s=self.now_s,
            cached=cached,
            patience_s=self.patience_s,
        )
        situation = Situation(
            stored=self.stored,
            configurations=configurations,
            sight=sight,
            now=self.now,
            settings=self.settings,
        )
        served = choose_served(situation)
        if served is not None and served is not sight.served:
            live = live_bundles(configurations)
            assert all(fingerprint(served.authority) in each.fingerprints for each in live), (
                f"replica {replica.name} takes what is not trusted yet"
            )
        sight = replace(sight, served=served)
        step = next_step(replace(situation, sight=sight))
        replica.sight = sight
        replica.looked_s = self.now_s
        replica.pending = (step, self.secret_version, self.now)
        replica.last = step
        return step

    def act(self, replica: Replica) -> None:
        """Carry out what was decided, if nothing changed since."""
        if replica.pending is None:
            return
        (step, secret_version, now), replica.pending = replica.pending, None
        match step:
            case Make() | Write():
                if secret_version != self.secret_version:
                    self.conflicts += 1
                    return
                stored = (
                    carry_out(
                        step, now=now, randomness=self.random.randbytes, settings=self.settings
                    )
                    if isinstance(step, Make)
                    else step.stored
                )
                if step.act is Act.PROMOTE:
                    self._excuse_if_urgent(replica, stored)
                if isinstance(step, Make):
                    self._give_up(self.stored.trusted.fingerprints - stored.trusted.fingerprints)
                self.write(write_secret(stored, self.secret or {}))
                self.acts.append(step.act)
            case Patch():
                self._patch(step)
            case Wait() | Rest():
                pass

    def _patch(self, step: Patch) -> None:
        for configuration in step.configurations:
            kept = next(one for one in self.kept if one.name == configuration.name)
            if kept.live is None or str(kept.number) != configuration.version:
                self.conflicts += 1
                continue
            pem = step.bundle.to_pem()
            self.put(kept, tuple(pem for _ in range(kept.entries)), ours=True)
            self.acts.append(step.act)

    def _excuse_if_urgent(self, replica: Replica, stored: Stored) -> None:
        """Where nobody serves anything useful, promoting early can only help."""
        assert stored.current is not None
        authority = stored.trusted.voucher_of(stored.current, now=self.now)
        assert authority is not None
        if replica.sight.trusted_for_s(fingerprint(authority)) >= PROPAGATION_S - HAIR_S:
            return
        assert not any(self.is_useful(other) for other in self.replicas), "hurried without need"
        for kept in self.kept:
            for version in kept.versions:
                version.ours = version.ours and version is kept.live

    def _give_up(self, authorities: frozenset[str]) -> None:
        """Room is made for a new pair only where nobody is served well by the old ones."""
        for replica in self.replicas:
            served = replica.sight.served
            if served is not None and fingerprint(served.authority) in authorities:
                assert not self.is_useful(replica), "given up while it was of use"
        self.given_up |= authorities

    def turn(self, replica: Replica) -> Step:
        """Look, decide and act in one go."""
        step = self.decide(replica)
        self.act(replica)
        return step

    def crash(self, replica: Replica) -> None:
        replica.sight, replica.read, replica.pending = Sight(), None, None

    # -- time

    def tick(self, seconds: float) -> None:
        """Let time pass; whoever did not look for too long looks, as its timer makes it."""
        self.now_s += seconds
        for replica in self.replicas:
            if self.now_s - replica.looked_s >= POLL_S:
                replica.read = None
                self.decide(replica)

    def run(self, *, seconds: float = 2000.0) -> None:
        """Everybody takes turns until nobody has anything to do but wait for a date."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            steps = [self.turn(replica) for replica in self.replicas]
            if all(isinstance(step, Rest) for step in steps):
                return
            waits = [step.duration.total_seconds() for step in steps if isinstance(step, Wait)]
            if all(isinstance(step, Rest | Wait) for step in steps):
                self.now_s += max(min(waits), 1.0)
        raise AssertionError(f"no rest after {seconds} s: {[one.last for one in self.replicas]}")

    # -- what must hold

    def is_useful(self, replica: Replica) -> bool:
        served = replica.sight.served
        if served is None:
            return False
        return not find_faults(
            served.leaf, now=self.now, names=self.settings.names[:1], authorities=[served.authority]
        ) and all(one.live.holds(fingerprint(served.authority)) for one in self.kept if one.live)

    def check(self) -> None:
        """No replica serves a leaf whose authority a bundle in use lacks."""
        for replica in self.replicas:
            served = replica.sight.served
            if served is None or not served.leaf.not_before <= self.now <= served.leaf.not_after:
                continue  # callers refuse it whatever they trust
            if fingerprint(served.authority) in self.given_up:
                continue  # it was of no use then, and the clock has returned since
            for kept in self.kept:
                for version in kept.versions:
                    if version.ours and self.in_use(version):
                        assert version.holds(fingerprint(served.authority)), (
                            f"replica {replica.name} serves {served.authority.subject}, "
                            f"which {kept.name} did not trust from {version.since_s} s on "
                            f"(now {self.now_s} s)"
                        )
        assert self.most_authorities <= 3


def _configuration(kept: Kept, bundles: tuple[bytes, ...]) -> Configuration:
    return Configuration(
        kind="MutatingWebhookConfiguration",
        name=kept.name,
        version=str(kept.number),
        generation=str(kept.number),
        bundles=bundles,
    )
