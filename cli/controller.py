"""``gpu-sharing controller``: bring layouts and faults to the nodes of a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import logs
from cli.exposition import exposed
from cli.main import Invocation
from cli.service import serve

if TYPE_CHECKING:
    from sharing.controller.controller import ControllerSettings


@click.command(short_help="Bring layouts and faults to the nodes.")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The cluster, if not the usual one.",
)
@click.option(
    "--lease-namespace",
    default="gpu-sharing",
    show_default=True,
    envvar="POD_NAMESPACE",
    metavar="NAME",
    help="Where the Lease is that chooses one of several controllers.",
)
@click.option(
    "--no-lease", is_flag=True, help="Work without a Lease: there is no other controller."
)
@click.option(
    "--evictions-per-minute",
    type=click.IntRange(1, 10_000),
    default=60,
    show_default=True,
    help="How many pods may leave faulty GPUs within a minute.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Port of probes and metrics; none if not given.",
)
@click.pass_obj
def controller(
    invocation: Invocation,
    kubeconfig: Path | None,
    lease_namespace: str,
    *,
    no_lease: bool,
    evictions_per_minute: int,
    metrics_port: int | None,
) -> None:
    """Turn GPULayouts into what each node's GPUs shall be, until SIGTERM.

    A line is printed when it knows the cluster. Several may run; one of them works.

    \b
      gpu-sharing controller --kubeconfig admin.conf --no-lease
    """  # noqa: D301 - click takes the character itself for its mark
    logs.configure(debug=invocation.debug)
    from sharing.controller.controller import ControllerSettings
    from sharing.controller.election import LeaseSettings

    lease = None if no_lease else LeaseSettings(namespace=lease_namespace)
    settings = ControllerSettings(lease=lease, evictions_per_minute=evictions_per_minute)
    asyncio.run(_run(kubeconfig, settings, metrics_port))


async def _run(
    kubeconfig: Path | None, settings: ControllerSettings, metrics_port: int | None
) -> None:
    from prometheus_client import CollectorRegistry

    from sharing.cluster.client import Client
    from sharing.controller.controller import Controller

    registry = CollectorRegistry()
    async with Client.from_kubeconfig(kubeconfig, user_agent="gpu-sharing-controller") as client:
        working = Controller(settings, client, registry)
        async with exposed(registry, working.ready, metrics_port) as port:
            told = f"controller is ready, metrics on port {port}" if port else "controller is ready"
            await serve(working.run(), working.ready, lambda: told)
