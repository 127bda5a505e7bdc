"""``gpu-sharing doctor``: is this node fit to share its GPUs, and what is to be done if not."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from sharing.printable import printable

if TYPE_CHECKING:
    from sharing.node.fitness import Check
    from sharing.node.outfit import ClusterSeen

_FOLDER: Final = click.Path(file_okay=False, path_type=Path)
_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_WIDTH: Final = 100
_GFD: Final = "nvidia.com/gfd.timestamp"
_FAILED: Final = 1


@click.command(short_help="Check prerequisites and find conflicts.")
@click.option(
    "--node-name", envvar="NODE_NAME", metavar="NAME", help="Ask the cluster about this Node too."
)
@click.option("--kubeconfig", type=_FILE, metavar="FILE", help="The cluster, if not the usual one.")
@click.option(
    "--simulate-state", type=_FILE, metavar="FILE", help="Look at simulated GPUs in this file."
)
@click.option("--kubelet-dir", type=_FOLDER, metavar="DIR", help="[default: /var/lib/kubelet]")
@click.option("--cdi-dir", type=_FOLDER, metavar="DIR", help="[default: /var/run/cdi]")
@click.option("--state-dir", type=_FOLDER, metavar="DIR", help="[default: /var/lib/gpu-sharing]")
@click.option("--mps-dir", type=_FOLDER, metavar="DIR", help="[default: /run/gpu-sharing/mps]")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def doctor(  # noqa: PLR0913 - one parameter an option
    *,
    node_name: str | None,
    kubeconfig: Path | None,
    simulate_state: Path | None,
    kubelet_dir: Path | None,
    cdi_dir: Path | None,
    state_dir: Path | None,
    mps_dir: Path | None,
    as_json: bool,
) -> None:
    """Check what sharing this node's GPUs takes: driver, kubelet, folders, MPS, conflicts, clock.

    Run it on the node, as the agent would run, or in the agent's container. Nothing is changed.

    \b
      gpu-sharing doctor
      kubectl -n gpu-sharing exec ds/gpu-sharing-agent -- gpu-sharing doctor --node-name n1

    Exit status: 0 if nothing is in the way, 1 if a check failed.
    """  # noqa: D301 - click takes the character itself for its mark
    from sharing.node.examination import look
    from sharing.node.fitness import Outcome, examine
    from sharing.node.rivals import announced, mig_manager
    from sharing.node.settings import CDI_DIR, KUBELET_DIR, MPS_DIR, STATE_DIR, AgentSettings

    settings = AgentSettings(
        node=node_name or "",
        simulate=simulate_state,
        kubelet_dir=(kubelet_dir or KUBELET_DIR).absolute(),
        cdi_dir=(cdi_dir or CDI_DIR).absolute(),
        state_dir=(state_dir or STATE_DIR).absolute(),
        mps_dir=(mps_dir or MPS_DIR).absolute(),
    )
    cluster: ClusterSeen | None = None
    labels: dict[str, str] = {}
    if node_name is not None:
        cluster, labels = asyncio.run(_ask(node_name, kubeconfig))
    seen = replace(
        look(settings, cluster=cluster),
        mig_manager=mig_manager(labels, honoured=False),
        announced=announced(labels),
    )
    checks = examine(seen)
    if as_json:
        content = [asdict(check) for check in checks]
        click.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())
    else:
        for line in _lines(checks):
            click.echo(printable(line))
    if any(check.outcome is Outcome.FAIL for check in checks):
        click.get_current_context().exit(_FAILED)


async def _ask(node: str, kubeconfig: Path | None) -> tuple[ClusterSeen, dict[str, str]]:
    """The Node as the API server has it, and its labels."""
    from sharing.cluster.client import Client
    from sharing.cluster.kind import NODES
    from sharing.errors import GpuSharingError
    from sharing.names import MANAGED_LABEL
    from sharing.node.outfit import ClusterSeen

    try:
        async with Client.from_kubeconfig(kubeconfig, user_agent="gpu-sharing-doctor") as client:
            item: dict[str, Any] = await client.get(NODES, node)
    except GpuSharingError as error:
        return ClusterSeen(trouble=str(error)), {}
    labels = {str(key): str(one) for key, one in (item["metadata"].get("labels") or {}).items()}
    info = (item.get("status") or {}).get("nodeInfo") or {}
    seen = ClusterSeen(
        managed=labels.get(MANAGED_LABEL) == "true",
        kubelet=str(info.get("kubeletVersion") or ""),
        runtime=str(info.get("containerRuntimeVersion") or ""),
        gfd=_GFD in labels,
    )
    return seen, labels


def _lines(checks: Sequence[Check]) -> Iterator[str]:
    width = max(len(check.name) for check in checks)
    for check in checks:
        head = f"{check.outcome:<4}  {check.name:<{width}}  "
        yield from textwrap.wrap(
            printable(check.finding),
            width=_WIDTH,
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_on_hyphens=False,
        ) or [head.rstrip()]
        if check.remedy:
            yield from textwrap.wrap(
                printable(check.remedy),
                width=_WIDTH,
                initial_indent=" " * len(head) + "→ ",
                subsequent_indent=" " * (len(head) + 2),
                break_on_hyphens=False,
            )
    counts = {word: sum(str(one.outcome) == word for one in checks) for word in ("fail", "warn")}
    yield ""
    yield (
        f"{len(checks)} checks: {counts['fail']} failed, {counts['warn']} with a warning. "
        "Nothing was changed."
    )
