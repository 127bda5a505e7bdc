"""Rotation as whole stories: install, renew, ask, break, put right."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from certs.bundle import NOBODY, Bundle
from certs.leaf import fingerprint
from certs.schedule import RotationSettings, renew_at
from certs.secret import ASK_ANNOTATION, Stored
from certs.step import WRITING, Act, Make, Patch, Rest, Wait, Write
from sharing.errors import InputError
from tests.certs.world import NAMES, POLL_S, PROPAGATION_S, SETTINGS, World


def settled(*, replicas: int = 2, seed: int = 0) -> World:
    world = World(replicas=replicas, seed=seed)
    world.run()
    world.check()
    world.tick(SETTINGS.settle.total_seconds() * 2)
    return world


def served_by(world: World) -> set[str]:
    return {
        one.sight.served.leaf.fingerprint for one in world.replicas if one.sight.served is not None
    }


def ask(world: World, wish: str) -> None:
    assert world.secret is not None
    metadata = world.secret["metadata"]
    annotations = {**metadata.get("annotations", {}), ASK_ANNOTATION: wish}
    world.write({**world.secret, "metadata": {**metadata, "annotations": annotations}})


def test_installation_needs_no_waiting_since_nobody_serves_yet() -> None:
    world = World(replicas=1)

    acts = [world.turn(world.replicas[0]).act for _ in range(6)]

    assert acts == [Act.MAKE, Act.TRUST, Act.PROMOTE, Act.REST, Act.REST, Act.REST]
    assert served_by(world) == {world.stored.current.fingerprint}  # type: ignore[union-attr]


def test_three_replicas_at_once_on_an_empty_secret_agree_on_one_authority() -> None:
    world = World(replicas=3)

    for replica in world.replicas:  # all read and decide before any writes
        assert isinstance(world.decide(replica), Make)
    for replica in world.replicas:
        world.act(replica)
    world.run()

    assert world.acts.count(Act.MAKE) == 1
    assert world.conflicts == 2
    assert len(world.stored.trusted) == 1
    assert len(served_by(world)) == 1


@pytest.mark.parametrize("secret", [None, {"metadata": {}}, {"metadata": {}, "data": None}])
def test_a_missing_secret_is_a_normal_beginning(secret: dict[str, object] | None) -> None:
    world = World(replicas=1)
    world.write(secret)

    world.run()

    assert world.stored.current is not None


def test_rotation_trusts_first_waits_and_serves_later() -> None:
    world = settled(replicas=1)
    replica = world.replicas[0]
    first = world.stored.current
    assert first is not None
    world.offset += renew_at(first) - world.now

    assert world.turn(replica).act is Act.MAKE
    assert world.turn(replica).act is Act.TRUST
    waiting = world.turn(replica)
    assert isinstance(waiting, Wait)
    assert waiting.duration == timedelta(seconds=PROPAGATION_S)
    world.now_s += PROPAGATION_S - 1
    assert world.turn(replica).act is Act.WAIT
    assert served_by(world) == {first.fingerprint}
    world.now_s += 1
    assert world.turn(replica).act is Act.PROMOTE
    world.turn(replica)
    assert served_by(world) != {first.fingerprint}
    assert len(world.stored.trusted) == 2


def test_wait_for_trust_begins_when_no_api_server_shows_an_older_bundle() -> None:
    # An API server that is starved, or was cut off from etcd, calls by what its cache holds.
    world = settled(replicas=1)
    world.lag_s = 5 * PROPAGATION_S
    replica = world.replicas[0]
    before = served_by(world)
    ask(world, "now")
    assert [world.turn(replica).act for _ in range(3)] == [Act.MAKE, Act.TRUST, Act.WAIT]

    for _ in range(9):
        world.now_s += PROPAGATION_S / 2
        waiting = world.turn(replica)
        assert isinstance(waiting, Wait)
        assert waiting.duration == timedelta(seconds=PROPAGATION_S)
    world.now_s += PROPAGATION_S / 2
    assert world.turn(replica).act is Act.WAIT
    world.now_s += PROPAGATION_S
    assert served_by(world) == before

    assert world.turn(replica).act is Act.PROMOTE
    world.turn(replica)
    assert served_by(world) != before
    world.check()


def test_a_replica_that_did_not_promote_waits_for_late_api_servers_too() -> None:
    world = settled(replicas=2)
    promoter, other = world.replicas
    before = served_by(world)
    ask(world, "now")
    while world.turn(promoter).act is not Act.PROMOTE:
        world.now_s += PROPAGATION_S / 4
    world.lag_s = world.now_s  # the one that it meets now knows nothing of all this

    world.turn(other)
    world.now_s += 2 * PROPAGATION_S
    world.turn(other)

    served = other.sight.served
    assert served is not None
    assert {served.leaf.fingerprint} == before


def test_wait_for_trust_begins_anew_after_a_time_without_a_look() -> None:
    # Whoever was away with an etcd does not know which API servers have caught up since.
    world = settled(replicas=1)
    world.patience_s = PROPAGATION_S
    replica = world.replicas[0]
    ask(world, "now")
    assert [world.turn(replica).act for _ in range(3)] == [Act.MAKE, Act.TRUST, Act.WAIT]

    world.now_s += 10 * PROPAGATION_S

    waiting = world.turn(replica)
    assert isinstance(waiting, Wait)
    assert waiting.duration == timedelta(seconds=PROPAGATION_S)


def test_wait_for_trust_begins_anew_when_a_bundle_was_emptied_meanwhile() -> None:
    world = settled(replicas=1)
    replica = world.replicas[0]
    ask(world, "now")
    assert [world.turn(replica).act for _ in range(3)] == [Act.MAKE, Act.TRUST, Act.WAIT]
    world.now_s += PROPAGATION_S - 1
    world.put(world.kept[0], (b"", b""), ours=False)

    assert world.turn(replica).act is Act.REPAIR
    world.now_s += 2
    waiting = world.turn(replica)

    assert isinstance(waiting, Wait)
    assert waiting.duration == timedelta(seconds=PROPAGATION_S)


def test_old_authority_is_forgotten_a_day_after_its_leaf_was_replaced() -> None:
    world = settled()
    before = world.stored.trusted.fingerprints
    ask(world, "now")
    world.run()
    assert before < world.stored.trusted.fingerprints

    world.now_s += SETTINGS.overlap.total_seconds()
    world.run()

    assert len(world.stored.trusted) == 1
    assert not before & world.stored.trusted.fingerprints
    assert all(
        one.live is not None and Bundle.parse(pem) == world.stored.trusted
        for one in world.kept
        for pem in one.live.bundles  # type: ignore[union-attr]
    )


def test_a_wish_is_carried_out_once() -> None:
    world = settled()
    first = world.stored.current

    ask(world, "2026-05-04T12:00:00Z")
    world.run()
    second = world.stored.current
    world.run()

    assert first != second
    assert world.stored.current == second
    assert world.acts.count(Act.MAKE) == 2


def test_third_wish_within_a_day_waits_until_an_old_authority_may_go() -> None:
    world = settled()
    for wish in ("one", "two"):
        ask(world, wish)
        world.run()
    assert len(world.stored.trusted) == 3
    ask(world, "three")

    step = world.turn(world.replicas[0])

    assert isinstance(step, Wait)
    assert "hold 3 at most" in step.why
    assert timedelta(hours=23) < step.duration <= SETTINGS.overlap


def test_every_act_is_told_as_one_of_a_step_and_no_other_can_be_made() -> None:
    told = frozenset[Act]().union(*(kind.ACTS for kind in WRITING))

    assert told | {Act.WAIT, Act.REST} == set(Act)
    with pytest.raises(ValueError, match="Write does not trust"):
        Write(act=Act.TRUST, stored=Stored(), why="")
    with pytest.raises(ValueError, match="Patch does not promote"):
        Patch(act=Act.PROMOTE, bundle=NOBODY, configurations=(), why="")


def test_fifty_rotations_leave_one_authority_and_never_more_than_three() -> None:
    world = settled()

    for number in range(50):
        ask(world, str(number))
        world.run(seconds=3e5)
        world.check()
        if number % 3 == 0:
            world.now_s += SETTINGS.overlap.total_seconds()
    world.now_s += SETTINGS.overlap.total_seconds()
    world.run()

    assert world.acts.count(Act.PROMOTE) == 51
    assert world.most_authorities <= 3
    assert len(world.stored.trusted) == 1


def test_new_names_lead_to_a_new_certificate() -> None:
    world = settled()
    first = world.stored.current
    assert first is not None
    world.settings = replace(SETTINGS, names=(*NAMES, "extra.gpu-sharing.svc"))

    world.run()

    assert world.stored.current is not None
    assert "extra.gpu-sharing.svc" in world.stored.current.names
    assert world.acts.count(Act.MAKE) == 2


def test_names_beyond_those_wanted_are_no_reason_to_renew() -> None:
    world = settled()
    world.settings = replace(SETTINGS, names=NAMES[:1])

    world.run()

    assert world.acts.count(Act.MAKE) == 1


def test_a_new_service_name_is_served_at_once_since_the_old_one_helps_nobody() -> None:
    world = settled(replicas=1)
    world.settings = replace(SETTINGS, names=("other.gpu-sharing.svc",))

    acts = [world.turn(world.replicas[0]).act for _ in range(3)]

    assert acts == [Act.MAKE, Act.TRUST, Act.PROMOTE]


def test_an_expired_certificate_is_replaced_at_once() -> None:
    world = settled(replicas=1)
    world.offset += timedelta(days=31)

    acts = [world.turn(world.replicas[0]).act for _ in range(3)]

    assert acts[0] is Act.MAKE
    assert acts[2] is Act.PROMOTE
    world.run()
    assert len(world.stored.trusted) == 1


def test_deleted_secret_is_put_back_from_memory_and_then_rotated() -> None:
    world = settled()
    served = served_by(world)
    world.write(None)

    assert world.turn(world.replicas[0]).act is Act.HEAL
    assert world.stored.current is not None
    assert {world.stored.current.fingerprint} == served
    world.run()

    assert served_by(world).isdisjoint(served)
    assert world.acts.count(Act.MAKE) == 2


def test_deleted_secret_met_by_a_fresh_replica_first_keeps_what_others_serve_trusted() -> None:
    world = settled(replicas=2)
    old = world.stored.trusted.fingerprints
    fresh, other = world.replicas
    world.crash(fresh)
    world.write(None)

    for _ in range(4):
        world.turn(fresh)
        world.check()

    assert old < world.stored.trusted.fingerprints
    assert world.is_useful(other)
    world.run()
    world.check()


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt", "schema", "promoted-at"])
@pytest.mark.parametrize("value", ["", "!!!", "Z2FyYmFnZQ==", 7])
def test_garbage_in_the_secret_is_recovered_without_distrust(key: str, value: object) -> None:
    world = settled()
    assert world.secret is not None
    world.write({**world.secret, "data": {**world.secret["data"], key: value}})

    for _ in range(40):
        for replica in world.replicas:
            world.turn(replica)
            world.check()
        world.now_s += 15

    assert world.stored.current is not None
    assert isinstance(world.turn(world.replicas[0]), Rest)
    assert all(world.is_useful(one) for one in world.replicas)


def test_unknown_schema_with_a_sound_pair_is_left_alone() -> None:
    world = settled()
    assert world.secret is not None
    world.write({**world.secret, "data": {**world.secret["data"], "schema": "Mg=="}})

    assert isinstance(world.turn(world.replicas[0]), Rest)
    assert world.stored.oddities == ("schema is '2' where '1' is known",)


def test_foreign_authority_in_a_bundle_is_thrown_out() -> None:
    world = settled()
    other = settled(seed=9)
    stranger = other.stored.trusted.to_pem()
    world.put(world.kept[1], (b"# not ours\n",), ours=False)
    assert world.turn(world.replicas[0]).act is Act.REPAIR
    # One that bears our name may be in use somewhere, so it is kept for a day.
    world.put(world.kept[1], (stranger,), ours=False)
    assert world.turn(world.replicas[0]).act is Act.HEAL
    world.run()
    assert len(world.stored.trusted) == 2
    world.now_s += SETTINGS.overlap.total_seconds()
    world.run()

    assert len(world.stored.trusted) == 1


def test_a_stale_next_leaf_is_dropped_before_it_is_served() -> None:
    world = settled(replicas=1)
    ask(world, "now")
    assert world.turn(world.replicas[0]).act is Act.MAKE
    stale = world.stored.next
    assert stale is not None
    world.offset += timedelta(days=25)

    world.run()

    assert world.stored.current is not None
    assert world.stored.current.not_before > stale.not_before + timedelta(days=24)


def test_configuration_that_appears_later_is_given_its_bundle() -> None:
    world = World(replicas=2)
    for kept in world.kept:
        world.drop(kept)
    world.run()
    assert world.stored.current is not None

    world.put(world.kept[0], (b"", b""), ours=False)
    world.run()

    assert world.kept[0].live is not None
    assert world.kept[0].live.bundles == (world.stored.trusted.to_pem(),) * 2


def test_renewal_point_lies_between_60_and_70_percent_and_is_the_same_for_all() -> None:
    points = set()
    for seed in range(20):
        leaf = settled(seed=seed, replicas=1).stored.current
        assert leaf is not None
        share = (renew_at(leaf) - leaf.not_before) / (leaf.not_after - leaf.not_before)
        assert 0.6 <= share <= 0.7
        assert renew_at(leaf) == renew_at(leaf)
        points.add(round(share, 4))
    assert len(points) > 10


def test_settings_refuse_a_life_too_short_for_a_rotation() -> None:
    with pytest.raises(InputError, match="leaves 0:09:00 for a renewal"):
        replace(SETTINGS, life=timedelta(minutes=30), settle=timedelta(minutes=10))


def test_settings_refuse_times_in_the_wrong_order() -> None:
    with pytest.raises(InputError, match="each at most as long as the one after it"):
        replace(SETTINGS, settle=timedelta(seconds=1))


def test_settings_refuse_to_have_no_name() -> None:
    with pytest.raises(InputError, match="no name to serve under"):
        RotationSettings(names=())


def test_authority_of_the_current_leaf_is_the_one_that_signed_it() -> None:
    world = settled()
    served = world.replicas[0].sight.served
    assert served is not None
    served.leaf.certificate.verify_directly_issued_by(served.authority)
    assert fingerprint(served.authority) in world.stored.trusted.fingerprints


def test_old_authority_stays_while_another_replica_may_serve_its_leaf_whatever_the_date() -> None:
    world = settled(replicas=2)
    quick, slow = world.replicas
    ask(world, "now")
    while world.turn(quick).act is not Act.PROMOTE:
        world.tick(10.0)
    world.offset += timedelta(days=2)

    for _ in range(3):
        world.turn(quick)
        world.check()

    assert slow.sight.served != quick.sight.served
    assert len(world.stored.trusted) == 2


def test_a_secret_from_a_backup_is_served_only_once_it_is_trusted() -> None:
    world = settled(replicas=2)
    backup = world.secret
    ask(world, "now")
    world.run()
    world.now_s += SETTINGS.overlap.total_seconds()
    world.run()
    served = served_by(world)
    world.write(backup)

    for _ in range(3):
        for replica in world.replicas:
            world.turn(replica)
            world.check()
        assert served_by(world) == served
    world.run()

    world.check()
    assert all(world.is_useful(one) for one in world.replicas)


def test_a_bundle_that_was_gone_between_two_looks_makes_the_wait_begin_anew() -> None:
    world = settled(replicas=1)
    replica = world.replicas[0]
    ask(world, "now")
    assert [world.turn(replica).act for _ in range(3)] == [Act.MAKE, Act.TRUST, Act.WAIT]
    kept = world.kept[0]
    assert kept.live is not None
    patched = kept.live.bundles
    world.now_s += PROPAGATION_S - 5
    world.turn(replica)
    world.put(kept, (b"", b""), ours=False)
    world.put(kept, patched, ours=False)
    world.now_s += 10

    step = world.turn(replica)

    assert isinstance(step, Wait)
    assert step.duration == timedelta(seconds=PROPAGATION_S)


def test_loss_of_secret_and_bundles_at_once_is_made_good_from_memory() -> None:
    world = settled(replicas=2)
    served = served_by(world)
    world.write(None)
    for kept in world.kept:
        world.put(kept, (b"",) * kept.entries, ours=False)

    acts = [world.turn(world.replicas[0]).act for _ in range(2)]

    assert acts == [Act.HEAL, Act.REPAIR]
    assert world.stored.current is not None
    assert {world.stored.current.fingerprint} == served
    assert all(world.is_useful(one) for one in world.replicas)


def test_loss_of_everything_met_by_a_fresh_replica_comes_to_one_certificate() -> None:
    world = settled(replicas=2)
    world.crash(world.replicas[0])
    world.write(None)
    for kept in world.kept:
        world.put(kept, (b"",) * kept.entries, ours=False)

    for _ in range(3):
        world.turn(world.replicas[0])
    world.run()

    assert len(served_by(world)) == 1
    assert all(world.is_useful(one) for one in world.replicas)


def test_a_clock_that_was_put_back_and_returns_costs_nobody_trust() -> None:
    world = settled(replicas=2)
    ask(world, "one")
    world.run()
    world.offset -= timedelta(days=1)
    world.write(None)
    world.turn(world.replicas[0])
    world.turn(world.replicas[0])
    world.offset += timedelta(days=1)

    world.check()
    world.run()
    world.check()


def test_room_is_made_by_what_nobody_accepts_where_the_clock_was_put_back() -> None:
    world = settled(replicas=1)
    first = world.stored.trusted.fingerprints
    world.offset += timedelta(hours=20)
    for wish in ("one", "two"):
        ask(world, wish)
        world.run()
    assert len(world.stored.trusted) == 3
    world.offset -= timedelta(hours=20)

    acts = [world.turn(world.replicas[0]).act for _ in range(3)]

    assert acts == [Act.HEAL, Act.MAKE, Act.TRUST]
    assert first < world.stored.trusted.fingerprints
    assert len(world.stored.trusted) == 3


def test_a_slow_replica_swaps_though_the_next_rotation_has_begun() -> None:
    world = settled(replicas=2)
    quick, slow = world.replicas
    ask(world, "one")
    while world.turn(quick).act is not Act.PROMOTE:
        world.tick(10.0)
    promoted = world.stored.current
    ask(world, "two")
    assert [world.turn(quick).act for _ in range(2)] == [Act.MAKE, Act.TRUST]

    world.tick(POLL_S)

    assert slow.sight.served is not None
    assert slow.sight.served.leaf == promoted
    world.check()
