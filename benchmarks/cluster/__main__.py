"""``python -m benchmarks.cluster``: time until pods are bound, with the webhook and without.

Real etcd, API server and scheduler; nodes are objects, and a loop marks their pods running. The
webhook is one process with the chart's rights. Full: 1,000 nodes of eight GPUs and 5,000 pods a
round, some ten minutes on two cores. ``--quick``: 100 nodes, 500 pods, under a minute.

Needs the programs of ``make cluster-programs``.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import click

from benchmarks.cluster import figures, inventory, rounds
from benchmarks.telling import Value, tell
from certs.start import fresh_identity
from cli.trial.programs import Program
from sharing.cluster.client import Client
from sharing.cluster.kind import MUTATING_WEBHOOKS, PODS
from sharing.names import MANAGED_LABEL
from tests.cluster import leftovers, needs
from tests.cluster.controlplane import ControlPlane
from tests.cluster.fleet import Fleet
from tests.cluster.rights import chart_identities
from tests.cluster.waiting import eventually
from webhook.registration import NAME, client_by_url, configuration

_HOST: Final = "127.0.0.1"
_WARM: Final = 50
"""Pods of a first round that does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    nodes: int
    pods: int
    pairs: int


FULL: Final = Size(nodes=1000, pods=5000, pairs=3)
QUICK: Final = Size(nodes=100, pods=500, pairs=1)


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the size.")
@click.option("--pairs", type=click.IntRange(1, 20), help="Rounds with and without the webhook.")
@click.option("--json", "file", type=click.Path(path_type=Path), metavar="FILE",
              help="Where the figures go as one flat JSON object.")  # fmt: skip
def main(*, quick: bool, pairs: int | None, file: Path | None) -> None:
    """Measure what admission adds to the time until pods are bound."""
    if lacks := needs.missing(needs.Tier.SCALE):
        raise click.ClickException(f"missing: {'; '.join(lacks)}")
    size = QUICK if quick else FULL
    size = Size(nodes=size.nodes, pods=size.pods, pairs=pairs or size.pairs)
    leftovers.sweep()
    folder = leftovers.make_folder()
    try:
        with ControlPlane(folder, scheduler=True) as plane:
            found = asyncio.run(run(plane, folder, size))
    finally:
        shutil.rmtree(folder)
    tell(found, figures.MEANINGS, file)


async def run(plane: ControlPlane, folder: Path, size: Size) -> dict[str, Value]:
    """Measure on a running control plane."""
    admin = plane.access.kubeconfig()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client.from_kubeconfig(admin))
        await inventory.define(client)
        capacity = {inventory.RESOURCE: str(inventory.PER_NODE), "pods": "200"}
        _say(f"making {size.nodes} nodes")
        labels = {MANAGED_LABEL: "true"}
        fleet = Fleet(admin, count=size.nodes, capacity=capacity, labels=labels)
        await asyncio.to_thread(fleet.__enter__)
        stack.push_async_callback(asyncio.to_thread, fleet.__exit__, None, None, None)
        await inventory.publish(client, fleet.names)
        hook = await _webhook(stack, plane, folder, size.nodes * inventory.PER_NODE)
        names = await rounds.make_namespaces(client)
        pids = {**plane.pids(), "webhook": hook.program.pid or 0}
        done = []
        for number in range(-1, size.pairs):
            for on in (False, True) if number % 2 == 0 else (True, False):
                await _register(client, hook.registration if on else None)
                each = await rounds.measure(client, webhook=on, namespace=names[on], pids=pids,
                                            pods=size.pods if number >= 0 else _WARM)  # fmt: skip
                _say(f"webhook {'on ' if on else 'off'}: {each.pods} pods bound in "
                     f"{each.bound_s:.1f} s")  # fmt: skip
                done += [each] if number >= 0 else []
        p99_ms = figures.p99_ms(await hook.metrics())
        return figures.figures(
            done, p99_ms, nodes=size.nodes, gpus=size.nodes * inventory.GPUS, pods=size.pods,
            pairs=size.pairs, load_average=round(os.getloadavg()[0], 1),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """The running webhook."""

    program: Program
    registration: dict[str, Any]

    async def metrics(self) -> str:
        """Its metrics as text."""
        address = self.program.address("http").rpartition("/")[0] + "/metrics"
        async with aiohttp.ClientSession() as session, session.get(address) as response:
            return await response.text()


async def _webhook(stack: AsyncExitStack, plane: ControlPlane, folder: Path, shares: int) -> Hook:
    """Start it and wait until it knows every share."""
    rights = await asyncio.to_thread(chart_identities, plane.access)
    identity = fresh_identity([_HOST], datetime.now(UTC))
    certificate, key = folder / "webhook.crt", folder / "webhook.key"
    certificate.write_bytes(identity.leaf_pem)
    key.write_bytes(identity.key_pem)
    program = Program("webhook", [
        "webhook", "--kubeconfig", str(rights["webhook"]), "--host", _HOST, "--port", "0",
        "--health-host", _HOST, "--health-port", "0", "--drain-delay", "0",
        "--drain-timeout", "1", "--cert", str(certificate), "--key", str(key),
    ], log=plane.logs / "webhook.log", ready="ready: ")  # fmt: skip
    await program.start()
    stack.push_async_callback(program.stop)
    url = program.address("https")
    hook = Hook(program=program, registration=configuration(client_by_url(url, identity.ca_pem)))

    async def knows_all() -> bool:
        return f'offered_shares{{mode="mps"}} {float(shares)}' in await hook.metrics()

    await eventually("the webhook knows every share", knows_all, timeout_s=60)
    return hook


async def _register(client: Client, registration: dict[str, Any] | None) -> None:
    """Let pods go through the webhook, or not, and wait until it is so."""
    listed = (await client.list(MUTATING_WEBHOOKS))["items"]
    if registration is None:
        if listed:
            await client.delete(MUTATING_WEBHOOKS, NAME)
        await eventually("the webhook is not asked", lambda: _asked(client, wanted=False))
        return
    if not listed:
        await client.create(MUTATING_WEBHOOKS, registration)
    await eventually("the webhook is asked", lambda: _asked(client, wanted=True))


async def _asked(client: Client, *, wanted: bool) -> bool:
    """Whether a pod that is only tried comes back as wanted."""
    probe = rounds.pod("probe", "nvidia.com/gpu")
    made = await client.create(PODS, probe, namespace="on", dry_run=True)
    limits = made["spec"]["containers"][0]["resources"]["limits"]
    return (inventory.RESOURCE in limits) == wanted


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
