"""``gpu-sharing controller``: bring layouts and faults to the nodes of a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from cli import logs
from cli.main import Invocation
from cli.service import serve


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
@click.pass_obj
def controller(
    invocation: Invocation, kubeconfig: Path | None, lease_namespace: str, *, no_lease: bool
) -> None:
    """Turn GPULayouts into what each node's GPUs shall be, until SIGTERM.

    A line is printed when it knows the cluster. Several may run; one of them works.

    \b
      gpu-sharing controller --kubeconfig admin.conf --no-lease
    """  # noqa: D301 - click takes the character itself for its mark
    logs.configure(debug=invocation.debug)
    asyncio.run(_run(kubeconfig, "" if no_lease else lease_namespace))


async def _run(kubeconfig: Path | None, lease_namespace: str) -> None:
    from sharing.cluster.client import Client
    from sharing.controller.controller import Controller, ControllerSettings
    from sharing.controller.election import LeaseSettings

    lease = LeaseSettings(namespace=lease_namespace) if lease_namespace else None
    async with Client.from_kubeconfig(kubeconfig, user_agent="gpu-sharing-controller") as client:
        working = Controller(ControllerSettings(lease=lease), client)
        await serve(working.run(), working.ready, lambda: "controller is ready")
