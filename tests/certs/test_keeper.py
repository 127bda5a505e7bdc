"""Replicas that keep their certificates in a real API server and serve real handshakes."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from certs.cluster import Cluster, Outcome, read_configuration
from certs.probe import probe
from certs.rotation import next_step
from certs.servertime import TimedClient
from certs.step import Act
from embedded.apiserver.server import ApiServer
from sharing.cluster.client import Client, PatchType
from sharing.cluster.errors import ApiError, InvalidError, NotFoundError
from sharing.cluster.events import EventRecorder
from sharing.cluster.kind import EVENTS, MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from tests.certs.bench import NAME, PLACE, QUICK, Bench, configuration


async def test_installation_ends_with_a_handshake_that_every_bundle_verifies(bench: Bench) -> None:
    replica = await bench.start()

    await bench.until(lambda: not replica.keeper.unready_reason(), "ready")

    await bench.call(replica)
    bundles = await bench.bundles()
    assert [len(bundle) for bundle in bundles] == [1, 1, 1]


async def test_three_replicas_at_once_on_an_empty_secret_serve_one_certificate(
    bench: Bench,
) -> None:
    replicas = await asyncio.gather(*(bench.start() for _ in range(3)))

    await bench.until(lambda: all(not one.keeper.unready_reason() for one in replicas), "all ready")

    assert len({one.context.leaf.fingerprint for one in replicas if one.context.leaf}) == 1
    assert sum(one.value("steps_total", act="make") or 0 for one in replicas) == 1
    assert [len(bundle) for bundle in await bench.bundles()] == [1, 1, 1]


async def test_a_lost_race_is_a_conflict_and_throws_away_what_was_made(bench: Bench) -> None:
    first, second = bench.replica(), bench.replica()
    looks = [await one.keeper._cluster.look() for one in (first, second)]
    steps = [
        next_step(one.keeper._see(look)) for one, look in zip((first, second), looks, strict=True)
    ]
    cluster = first.keeper._cluster

    outcomes = [
        await cluster.carry_out(step, look, QUICK) for step, look in zip(steps, looks, strict=True)
    ]

    assert outcomes == [Outcome.DONE, Outcome.CONFLICT]
    assert len((await bench.stored()).trusted) == 1


async def test_a_patch_decided_on_an_older_configuration_is_refused(bench: Bench) -> None:
    replica = bench.replica()
    await replica.keeper.turn()
    look = await replica.keeper._cluster.look()
    step = next_step(replica.keeper._see(look))
    await bench.client.patch(
        MUTATING_WEBHOOKS, "gpu-sharing", {"metadata": {"labels": {"changed": "yes"}}}
    )

    outcome = await replica.keeper._cluster.carry_out(step, look, QUICK)

    assert outcome is Outcome.CONFLICT
    assert [len(bundle) for bundle in await bench.bundles()] == [0, 0, 0]


async def test_rotations_under_load_fail_no_handshake(bench: Bench) -> None:
    replicas = [await bench.start() for _ in range(2)]
    await bench.until(lambda: all(not one.keeper.unready_reason() for one in replicas), "all ready")
    calls, failures, done = 0, list[str](), False

    async def load(number: int) -> None:
        nonlocal calls
        while not done:
            try:
                await bench.call(replicas[number % 2])
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a failed call
                failures.append(repr(error))
            calls += 3

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(load(number))
        for number in range(6):
            before = replicas[0].context.leaf
            await replicas[0].keeper._cluster.ask(str(number))
            await bench.until(
                lambda old=before: all(  # type: ignore[misc]
                    one.context.leaf is not None and one.context.leaf != old for one in replicas
                ),
                f"rotation {number}",
            )
        done = True

    assert not failures
    assert calls >= 100
    assert all(len(bundle) <= 3 for bundle in await bench.bundles())


async def test_an_emptied_bundle_is_repaired_at_once_and_said_in_an_event(bench: Bench) -> None:
    async with EventRecorder(bench.client, "gpu-sharing-webhook") as recorder:
        bench.recorder = recorder
        replica = await bench.start()
        await bench.until(lambda: not replica.keeper.unready_reason(), "ready")
        emptied = [{"op": "remove", "path": "/webhooks/1/clientConfig/caBundle"}]
        await bench.client.patch(
            MUTATING_WEBHOOKS, "gpu-sharing", emptied, patch_type=PatchType.JSON
        )
        await bench.until(lambda: replica.value("steps_total", act="repair") == 1, "repaired")
        await recorder.drain()

    assert [len(bundle) for bundle in await bench.bundles()] == [1, 1, 1]
    events = await bench.client.list(EVENTS, namespace=PLACE.namespace)
    assert "BundleRepaired" in {event["reason"] for event in events["items"]}


HALF: Final = base64.b64encode(b"-----BEGIN PRIVATE KEY-----\nMIG").decode()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (None, "the certificate in use was missing"),
        ({"data": None}, "the certificate in use was missing"),
        ({"data": {"tls.key": HALF}}, "tls.key"),
        ({"data": {"ca.crt": base64.b64encode(b"garbage").decode()}}, "list of authorities"),
    ],
)
async def test_a_broken_secret_is_put_right_and_said_in_an_event(
    bench: Bench, damage: dict[str, object] | None, said: str
) -> None:
    replica = bench.replica()
    for _ in range(6):
        await replica.keeper.turn()
    before = await bench.stored()
    if damage is None:
        await bench.client.delete(SECRETS, PLACE.secret, namespace=PLACE.namespace)
    else:
        await bench.client.patch(SECRETS, PLACE.secret, damage, namespace=PLACE.namespace)

    async with EventRecorder(bench.client, "gpu-sharing-webhook") as recorder:
        replica.keeper._recorder = recorder
        healed = await replica.keeper.turn()
        await recorder.drain()

    assert healed.act is Act.HEAL
    assert (await bench.stored()).current == before.current
    (event,) = (await bench.client.list(EVENTS, namespace=PLACE.namespace))["items"]
    assert (event["type"], event["reason"]) == ("Warning", "CertificateSecretRepaired")
    assert said in event["message"]


async def test_a_certificate_that_no_bundle_trusts_is_not_served_and_said(bench: Bench) -> None:
    replica = bench.replica()
    # Until the pair is current, and before anything else: then somebody empties the bundles.
    while (await replica.keeper.turn()).act is not Act.PROMOTE:
        pass
    for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        emptied = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
        await bench.client.patch(kind, "gpu-sharing", emptied, patch_type=PatchType.JSON)

    repaired = await replica.keeper.turn()

    assert repaired.act is Act.REPAIR
    assert replica.context.leaf is None
    assert "do not trust the certificate" in replica.keeper.unready_reason()
    await replica.keeper.turn()
    assert not replica.keeper.unready_reason()


async def test_an_emptied_bundle_is_mended_by_the_event_alone(bench: Bench) -> None:
    replica = bench.replica()
    for _ in range(6):
        await replica.keeper.turn()
    emptied = [{"op": "remove", "path": "/webhooks/1/clientConfig/caBundle"}]
    await bench.client.patch(MUTATING_WEBHOOKS, "gpu-sharing", emptied, patch_type=PatchType.JSON)
    item = await bench.client.get(MUTATING_WEBHOOKS, "gpu-sharing")

    seen_s = replica.keeper._looked_s or 0.0
    replica.keeper._monotonic = lambda: seen_s  # a busy machine takes longer than the wait

    await replica.keeper._mend(read_configuration("MutatingWebhookConfiguration", item))

    assert [len(bundle) for bundle in await bench.bundles()] == [1, 1, 1]
    assert replica.value("steps_total", act="repair") == 1


async def test_what_was_last_seen_long_ago_mends_nothing(bench: Bench) -> None:
    replica = bench.replica()
    for _ in range(6):
        await replica.keeper.turn()
    emptied = [{"op": "remove", "path": "/webhooks/1/clientConfig/caBundle"}]
    await bench.client.patch(MUTATING_WEBHOOKS, "gpu-sharing", emptied, patch_type=PatchType.JSON)
    item = await bench.client.get(MUTATING_WEBHOOKS, "gpu-sharing")
    seen_s = replica.keeper._looked_s or 0.0
    replica.keeper._monotonic = lambda: seen_s + 1.0

    await replica.keeper._mend(read_configuration("MutatingWebhookConfiguration", item))

    assert [len(bundle) for bundle in await bench.bundles()] == [1, 0, 1]


async def test_a_deleted_secret_is_put_back_and_rotated_without_a_failed_call(
    bench: Bench,
) -> None:
    replicas = [await bench.start() for _ in range(2)]
    await bench.until(lambda: all(not one.keeper.unready_reason() for one in replicas), "all ready")
    before = replicas[0].context.leaf
    await bench.client.delete(SECRETS, PLACE.secret, namespace=PLACE.namespace)
    well = True

    def rotated() -> bool:
        return all(one.context.leaf is not None and one.context.leaf != before for one in replicas)

    for _ in range(400):
        well = well and all([await bench.is_well(one) for one in replicas])
        if rotated():
            break

    assert well
    assert rotated()


@pytest.mark.parametrize("act", [Act.MAKE, Act.TRUST, Act.PROMOTE])
async def test_another_replica_carries_on_where_one_was_killed(bench: Bench, act: Act) -> None:
    steady = await bench.start()
    await bench.until(lambda: not steady.keeper.unready_reason(), "ready")
    await bench.kill(steady)
    doomed = bench.replica()
    await doomed.keeper.turn()
    await doomed.keeper._cluster.ask("now")
    acts = [(await doomed.keeper.turn()).act]
    while acts[-1] is not act and len(acts) < 1000:
        acts.append((await doomed.keeper.turn()).act)
    assert acts[-1] is act

    heir = await bench.start()
    await bench.until(
        lambda: (
            heir.context.leaf is not None
            and heir.context.leaf != steady.context.leaf
            and not heir.keeper.unready_reason()
        ),
        "carried on",
    )

    await bench.call(heir)


class TwoServers(TimedClient):
    """As behind a load balancer: a connection of its own leads to the other API server."""

    other: Path

    def anew(self) -> Client:
        return Client.from_kubeconfig(self.other)


async def test_a_rotation_waits_for_an_api_server_that_is_behind(
    bench: Bench, tmp_path: Path
) -> None:
    steady = bench.replica()
    for _ in range(6):
        await steady.keeper.turn()
    async with ApiServer(tls=True) as behind, TwoServers.from_kubeconfig(bench.kubeconfig) as pair:
        pair.other = behind.write_kubeconfig(tmp_path / "behind")
        replica = bench.replica()
        replica.keeper._cluster = Cluster(pair, PLACE, clock=pair.time)
        await replica.keeper._cluster.ask("now")
        async with Client.from_kubeconfig(pair.other) as administrator:
            # It was told of one of the two, and not of the next authority.
            made = configuration("MutatingWebhookConfiguration", 2)
            await administrator.create(MUTATING_WEBHOOKS, made)
            began_s = replica.keeper._monotonic()
            replica.keeper._monotonic = lambda: began_s + len(acts)
            acts = list[Act]()
            while len(acts) < 12:
                acts.append((await replica.keeper.turn()).act)
            assert Act.PROMOTE not in acts
            assert acts[-4:] == [Act.WAIT] * 4

            await _tell(bench.client, administrator)
            late = [(await replica.keeper.turn()).act for _ in range(2)]
            acts += late

        assert late == [Act.WAIT, Act.WAIT]
        async with Client.from_kubeconfig(pair.other) as administrator:
            await administrator.create(
                VALIDATING_WEBHOOKS, configuration("ValidatingWebhookConfiguration", 1)
            )
            await _tell(bench.client, administrator)
        for _ in range(3):
            acts.append((await replica.keeper.turn()).act)
        assert Act.PROMOTE in acts


async def _tell(one: Client, other: Client) -> None:
    """Bring an API server up to date, as far as it knows the configurations at all."""
    for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        entries = (await one.get(kind, "gpu-sharing"))["webhooks"]
        with suppress(NotFoundError):
            await other.patch(kind, "gpu-sharing", {"webhooks": entries})


async def test_a_configuration_installed_later_gets_its_bundle(bench: Bench) -> None:
    await bench.client.delete(VALIDATING_WEBHOOKS, "gpu-sharing")
    replica = await bench.start()
    await bench.until(lambda: not replica.keeper.unready_reason(), "ready")
    await bench.client.create(
        VALIDATING_WEBHOOKS, configuration("ValidatingWebhookConfiguration", 3)
    )
    await bench.until(lambda: replica.value("steps_total", act="repair") == 1, "repaired")

    assert [len(bundle) for bundle in await bench.bundles()] == [1] * 5


async def test_an_api_server_that_is_away_makes_nobody_unready(bench: Bench) -> None:
    settings = replace(QUICK, overlap=timedelta(hours=24))
    replica = await bench.start(settings)
    await bench.until(lambda: not replica.keeper.unready_reason(), "ready")
    bundle = (await bench.bundles())[0]

    await bench.server.stop()
    await bench.until(
        lambda: (replica.value("attempts_total", result="done") or 0) > 0, "went on trying"
    )

    assert not replica.keeper.unready_reason()
    await probe("127.0.0.1", replica.port, name=NAME, authorities=bundle)


async def test_unready_reason_names_what_is_missing(bench: Bench) -> None:
    replica = bench.replica()
    assert replica.keeper.unready_reason() == "there is no certificate to serve yet"
    for _ in range(6):
        await replica.keeper.turn()
    assert not replica.keeper.unready_reason()

    replica.offset[0] = timedelta(days=31)

    assert "tls" not in replica.keeper.unready_reason()
    assert "expired at" in replica.keeper.unready_reason()


async def test_metrics_tell_dates_only_once_they_are_known(bench: Bench) -> None:
    replica = bench.replica()
    assert replica.value("leaf_not_after_timestamp_seconds") is None
    for _ in range(6):
        await replica.keeper.turn()

    leaf = replica.context.leaf
    assert leaf is not None
    assert replica.value("leaf_not_after_timestamp_seconds") == leaf.not_after.timestamp()
    assert replica.value("bundle_not_after_timestamp_seconds") == leaf.not_after.timestamp()
    assert (
        replica.value("authority_not_after_timestamp_seconds", role="current")
        == leaf.not_after.timestamp()
    )
    renewal = replica.value("leaf_renewal_timestamp_seconds")
    assert renewal is not None
    assert renewal < leaf.not_after.timestamp()


async def test_a_secret_that_may_not_change_is_a_clear_failure(bench: Bench) -> None:
    await bench.client.patch(SECRETS, PLACE.secret, {"immutable": True}, namespace=PLACE.namespace)
    replica = bench.replica()

    with pytest.raises(InvalidError, match="immutable"):
        await replica.keeper.turn()

    assert replica.value("attempts_total", result="failed") == 1


async def test_ask_for_a_rotation_of_a_missing_secret_is_an_error(bench: Bench) -> None:
    replica = bench.replica()
    with suppress(ApiError):
        await bench.client.delete(SECRETS, PLACE.secret, namespace=PLACE.namespace)

    with pytest.raises(ApiError, match="not found"):
        await replica.keeper._cluster.ask("now")


async def test_a_certificate_that_fails_the_check_is_counted_and_not_served(bench: Bench) -> None:
    replica = bench.replica()
    # The context looks at a clock of its own, which disagrees.
    replica.context._clock = lambda: datetime.now(UTC) + timedelta(days=40)
    for _ in range(4):
        await replica.keeper.turn()

    assert replica.context.leaf is None
    assert replica.value("swap_failures_total", fault="expired") == 1
    assert replica.keeper.unready_reason() == "there is no certificate to serve yet"


async def test_garbage_in_a_configuration_of_others_is_read_as_trusting_nobody() -> None:
    item = {"metadata": {}, "webhooks": [{"name": "a", "clientConfig": {"caBundle": "%%%"}}]}

    read = read_configuration("MutatingWebhookConfiguration", item)

    assert read.bundles == (b"",)
    assert read.hosts == ("",)


@pytest.mark.parametrize(
    ("client", "host"),
    [
        ({"service": {"name": "w", "namespace": "ns"}}, "w.ns.svc"),
        ({"url": "https://127.0.0.1:9443/admit"}, "127.0.0.1"),
        ({"url": "https://w.example.test/admit"}, "w.example.test"),
    ],
)
def test_the_name_that_callers_ask_for_is_read(client: dict[str, object], host: str) -> None:
    item = {"metadata": {}, "webhooks": [{"name": "a", "clientConfig": client}]}

    assert read_configuration("MutatingWebhookConfiguration", item).hosts == (host,)
