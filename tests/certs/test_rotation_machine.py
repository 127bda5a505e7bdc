"""The rotation under any order of events: crashes between steps, races, clocks, vandals."""

from __future__ import annotations

import base64
from datetime import timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from certs.authority import Authority
from certs.secret import ASK_ANNOTATION
from certs.step import Act, Rest, Step
from tests.certs.world import HAIR_S, POLL_S, PROPAGATION_S, Replica, World

WHO = st.integers(min_value=0, max_value=2)
WHICH = st.integers(min_value=0, max_value=1)
KEYS = st.sampled_from(
    ["schema", "tls.crt", "tls.key", "next.crt", "next.key", "ca.crt", "promoted-at", "retired"]
)
GARBAGE = st.sampled_from([b"", b"garbage", b"-----BEGIN CERTIFICATE-----\n"])


class Rotation(RuleBasedStateMachine):
    """Three replicas of one webhook, whatever happens to them and around them."""

    @initialize(
        seed=st.integers(min_value=0, max_value=2**32),
        lag_s=st.sampled_from([0.0, PROPAGATION_S / 2, 5 * PROPAGATION_S]),
    )
    def begin(self, seed: int, lag_s: float) -> None:
        self.world = World(replicas=3, seed=seed, lag_s=lag_s, patience_s=PROPAGATION_S + HAIR_S)
        # One vandal at a time: who takes both the Secret and the bundles leaves nothing.
        self.broken = False
        self.wishes = 0

    # -- replicas, each moment on its own

    @rule(who=WHO)
    def read_bundles(self, who: int) -> None:
        self.world.read_bundles(self.world.replicas[who])

    @rule(who=WHO)
    def decide(self, who: int) -> None:
        self.world.decide(self.world.replicas[who])

    @rule(who=WHO)
    def act(self, who: int) -> None:
        self.world.act(self.world.replicas[who])

    @rule(who=WHO, times=st.integers(min_value=1, max_value=6))
    def take_turns(self, who: int, times: int) -> None:
        for _ in range(times):
            self.world.turn(self.world.replicas[who])
            self.world.check()

    @rule(who=WHO)
    def crash(self, who: int) -> None:
        self.world.crash(self.world.replicas[who])

    # -- time

    @rule(seconds=st.sampled_from([0.1, 5.0, POLL_S]), times=st.integers(1, 5))
    def time_passes(self, seconds: float, times: int) -> None:
        for _ in range(times):
            self.world.tick(seconds)
            self.world.check()

    @precondition(lambda self: not self.broken)
    @rule(days=st.sampled_from([1, 4]))
    def days_pass(self, days: int) -> None:
        for _ in range(days):
            self.world.tick(86400.0)
            self.everybody_comes_to_rest()

    @rule(days=st.sampled_from([-1, 1]))
    def the_clock_jumps(self, days: int) -> None:
        if abs(self.world.offset + timedelta(days=days)) <= timedelta(days=1):
            self.world.offset += timedelta(days=days)

    @rule()
    def everybody_comes_to_rest(self) -> None:
        world = self.world
        for _ in range(400):
            steps = [self.turn_and_check(replica) for replica in world.replicas]
            if all(isinstance(step, Rest) for step in steps):
                break
            world.tick(POLL_S)
            world.check()
            if all(step.act == "wait" for step in steps) and "at most" in steps[0].why:
                break
        else:
            raise AssertionError(f"no rest: {[one.last for one in world.replicas]}")
        assert world.stored.current is not None
        assert all(world.is_useful(replica) for replica in world.replicas)
        assert len(world.stored.trusted) <= 3
        self.broken = False

    def turn_and_check(self, replica: Replica) -> Step:
        step = self.world.turn(replica)
        self.world.check()
        return step

    # -- people and vandals

    @precondition(lambda self: self.world.secret is not None)
    @rule()
    def somebody_asks_for_a_rotation(self) -> None:
        world = self.world
        assert world.secret is not None
        self.wishes += 1
        metadata = world.secret.get("metadata") or {}
        annotations = {**(metadata.get("annotations") or {}), ASK_ANNOTATION: str(self.wishes)}
        world.write({**world.secret, "metadata": {**metadata, "annotations": annotations}})

    @precondition(lambda self: self.world.secret is not None)
    @rule(who=WHO, others=st.booleans())
    def a_rotation_goes_as_far_as_its_promotion(self, who: int, others: bool) -> None:
        """The moment at which most can go wrong, reached without luck."""
        world = self.world
        self.somebody_asks_for_a_rotation()
        for _ in range(40):
            step = self.turn_and_check(world.replicas[who])
            if step.act is Act.PROMOTE:
                return
            world.tick(POLL_S / 2)
            world.check()
            if others:
                self.turn_and_check(world.replicas[(who + 1) % 3])

    @precondition(lambda self: not self.broken)
    @rule(how=st.sampled_from([None, {"metadata": {"name": "certs"}}]))
    def the_secret_is_deleted_or_emptied(self, how: dict[str, object] | None) -> None:
        self.broken = True
        self.world.write(how)

    @precondition(lambda self: not self.broken and self.world.secret is not None)
    @rule(key=KEYS, value=GARBAGE)
    def the_secret_is_garbled(self, key: str, value: bytes) -> None:
        self.broken = True
        assert self.world.secret is not None
        data = self.world.secret.get("data") or {}
        garbled = {**data, key: base64.b64encode(value).decode()}
        self.world.write({**self.world.secret, "data": garbled})

    @precondition(lambda self: not self.broken)
    @rule(which=WHICH, value=GARBAGE)
    def a_bundle_is_emptied(self, which: int, value: bytes) -> None:
        self.broken = True
        kept = self.world.kept[which]
        self.world.put(kept, (value,) * kept.entries, ours=False)

    @precondition(lambda self: not self.broken)
    @rule(which=WHICH)
    def a_bundle_is_replaced(self, which: int) -> None:
        self.broken = True
        stranger = Authority.make(now=self.world.now, randomness=self.world.random.randbytes)
        kept = self.world.kept[which]
        self.world.put(kept, (stranger.pem,) * kept.entries, ours=False)

    @precondition(lambda self: not self.broken)
    @rule(which=WHICH)
    def a_configuration_is_installed_anew(self, which: int) -> None:
        self.broken = True
        kept = self.world.kept[which]
        self.world.drop(kept)
        self.world.put(kept, (b"",) * kept.entries, ours=False)

    @invariant()
    def nobody_serves_what_is_not_trusted(self) -> None:
        self.world.check()


TestRotation = pytest.mark.timeout(600)(Rotation.TestCase)
TestRotation.settings = settings(
    # A tenth of the profile's examples: each is a history of an hour or more.
    max_examples=max(10, settings().max_examples // 10),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
