"""``gpu-sharing agent``: serve the GPUs of one node, real or simulated."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from cli import logs
from cli.main import Invocation
from cli.service import serve
from cli.serving import Serving, answers_of, serving_options

if TYPE_CHECKING:
    from sharing.node.agent import Agent
    from sharing.node.health import HealthPolicy
    from sharing.node.settings import AgentSettings

_FOLDER = click.Path(file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)
_REGISTER_S = 1.0
"""How long the kubelet is waited for before the rest of the program is loaded."""


@click.command(short_help="Serve the GPUs of one node.")
@click.option(
    "--node-name", required=True, envvar="NODE_NAME", metavar="NAME", help="The Node's name."
)
@click.option("--kubeconfig", type=_FILE, metavar="FILE", help="The cluster, if not the usual one.")
@click.option(
    "--layout",
    "layout_file",
    type=_FILE,
    metavar="FILE",
    help="Layout entries, mig-parted's mig-configs or the configuration of NVIDIA's device plugin; "
    "without --kubeconfig no API server is needed then.",
)
@click.option(
    "--mig-config",
    metavar="NAME",
    help="Which configuration, if --layout is mig-parted's file or a ConfigMap with several files.",
)
@click.option(
    "--honour-mig-config-label",
    "mig_configs",
    type=_FILE,
    metavar="FILE",
    help="Act on the Node's label nvidia.com/mig.config as NVIDIA's MIG manager does, with "
    "mig-parted's FILE, and write its state.",
)
@click.option("--simulate", metavar="BOARDS", help="Simulated GPUs, such as 8xH100-80GB.")
@click.option(
    "--simulate-state",
    type=_FILE,
    metavar="FILE",
    help="State of the simulated GPUs; made by --simulate if it is not there.",
)
@click.option(
    "--simulate-files",
    is_flag=True,
    help="Give containers device files of their simulated GPUs, which nothing answers.",
)
@click.option("--kubelet-dir", type=_FOLDER, metavar="DIR", help="[default: /var/lib/kubelet]")
@click.option("--cdi-dir", type=_FOLDER, metavar="DIR", help="[default: /var/run/cdi]")
@click.option(
    "--state-dir",
    type=_FOLDER,
    metavar="DIR",
    help="What has to outlive reboots.  [default: /var/lib/gpu-sharing]",
)
@click.option(
    "--mps-dir",
    type=_FOLDER,
    metavar="DIR",
    help="Pipes and logs of MPS.  [default: /run/gpu-sharing/mps]",
)
@click.option(
    "--end-mps",
    is_flag=True,
    help="End MPS daemons with the agent; they and their pods' work outlive it otherwise.",
)
@click.option(
    "--health-policy",
    type=_FILE,
    metavar="FILE",
    help="What XIDs and other signs mean for a GPU, where it is not as shipped.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Port of probes and metrics; none if not given.",
)
@click.option(
    "--enforce-memory",
    is_flag=True,
    help="Have the driver keep time-sliced pods within their shares' memory; only drivers with "
    "NVML 13.5 can.",
)
@click.option(
    "--no-share-metrics",
    is_flag=True,
    help="Leave out the metrics whose labels name shares and pods.",
)
@serving_options
@click.pass_obj
def agent(  # noqa: PLR0913, PLR0917 - one parameter an option
    invocation: Invocation,
    node_name: str,
    kubeconfig: Path | None,
    layout_file: Path | None,
    mig_config: str | None,
    mig_configs: Path | None,
    simulate: str | None,
    simulate_state: Path | None,
    simulate_files: bool,
    kubelet_dir: Path | None,
    cdi_dir: Path | None,
    state_dir: Path | None,
    mps_dir: Path | None,
    end_mps: bool,
    health_policy: Path | None,
    metrics_port: int | None,
    enforce_memory: bool,
    no_share_metrics: bool,
    **serving: Unpack[Serving],
) -> None:
    """Serve the GPUs of one node until SIGTERM.

    Layouts come from the node's GPUNode, or from a file. A line is printed when everything that
    is wanted is offered to the kubelet. Pods keep their shares while the agent is away.

    \b
      gpu-sharing agent --node-name n1
      gpu-sharing agent --node-name n1 --simulate 8xH100-80GB --simulate-state gpus.json \\
        --layout layout.yaml --kubelet-dir kubelet --cdi-dir cdi --state-dir state
    """  # noqa: D301 - click takes the character itself for its mark
    from sharing.mps.program import MpsVersion
    from sharing.node.settings import CDI_DIR, KUBELET_DIR, MPS_DIR, STATE_DIR, AgentSettings

    if mig_config is not None and layout_file is None:
        raise click.UsageError("--mig-config needs --layout FILE, mig-parted's file")
    if simulate_files and simulate is None and simulate_state is None:
        raise click.UsageError("--simulate-files needs --simulate BOARDS")
    state = _simulated(simulate, simulate_state)
    settings = AgentSettings(
        node=node_name,
        simulate=state,
        layout_file=layout_file,
        mig_config=mig_config,
        mig_configs=mig_configs,
        kubelet_dir=(kubelet_dir or KUBELET_DIR).absolute(),
        cdi_dir=(cdi_dir or CDI_DIR).absolute(),
        state_dir=(state_dir or STATE_DIR).absolute(),
        mps_dir=(mps_dir or MPS_DIR).absolute(),
        leave_mps_running=not end_mps,
        mps_version=MpsVersion(int(serving["mps_protocol"])),
        answers=answers_of(serving, simulated=state is not None, simulated_files=simulate_files),
        health=_health(health_policy),
        enforce_memory=enforce_memory,
        metrics_by_share=not no_share_metrics,
    )
    logs.configure(debug=invocation.debug)
    with_api = layout_file is None or kubeconfig is not None
    asyncio.run(_run(settings, kubeconfig, with_api=with_api, metrics_port=metrics_port))


async def _run(
    settings: AgentSettings, kubeconfig: Path | None, *, with_api: bool, metrics_port: int | None
) -> None:
    from sharing.node.forerunner import Forerunner

    async with AsyncExitStack() as stack:
        # The kubelet has its shares again before the rest of the program is loaded.
        early = Forerunner(settings)
        await early.start()
        stack.push_async_callback(early.plugins.stop)
        await early.plugins.wait_serving(_REGISTER_S)
        await asyncio.to_thread(import_module, "sharing.node.agent")
        # What was loaded stays: to look through it again takes tens of milliseconds each time, in
        # which no pod is admitted and no fault is told.
        gc.freeze()

        from prometheus_client import CollectorRegistry

        from cli.exposition import exposed
        from sharing.cluster.client import Client
        from sharing.node.agent import Agent
        from sharing.node.metrics import HealthMetrics

        client = None
        if with_api:
            client = await stack.enter_async_context(
                Client.from_kubeconfig(kubeconfig, user_agent="gpu-sharing-agent")
            )
        served, registry = Agent(settings, client, early=early), CollectorRegistry()
        registry.register(HealthMetrics(lambda: served.report, served.infirmary))
        registry.register(served.metrics)
        port = await stack.enter_async_context(exposed(registry, served.ready, metrics_port))
        await serve(served.run(), served.ready, lambda: _summary(served, port))


def _summary(served: Agent, port: int) -> str:
    gpus = served.report.gpus
    shares = sum(len(one.offer.shares) for one in gpus)
    metrics = f", metrics on port {port}" if port else ""
    return f"agent is ready: {len(gpus)} GPUs, {shares} shares{metrics}"


def _health(policy: Path | None) -> HealthPolicy:
    from sharing.node.health import HealthPolicy
    from sharing.node.xidfile import read_table

    return HealthPolicy() if policy is None else HealthPolicy.of(read_table(policy))


def _simulated(boards: str | None, state: Path | None) -> Path | None:
    """The state file of simulated GPUs, made if it is not there; None for the real driver."""
    if boards is None and state is None:
        return None
    if state is None:
        raise click.UsageError("--simulate needs --simulate-state FILE, where the GPUs' state goes")
    if not state.exists():
        if boards is None:
            raise click.UsageError(f"there is no {state}: name the GPUs, --simulate 8xH100-80GB")
        from sharing.nvml import simulator

        simulator.create(state, boards)
    return state.absolute()
