"""From the demo's options to the cluster that it runs on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from cli.trial.ground import Ground, Place
from cli.trial.scenario import NodeSpec
from sharing.errors import InputError, shown

EMBEDDED: Final = "embedded"
REAL: Final = "real"
PROGRAMS: Final = ("webhook", "controller", "agent")
_NODE: Final = re.compile(r"([a-z0-9][a-z0-9.-]*)(?:=([^,]+),([^,]+))?")
_LISTEN: Final = re.compile(r"(?:\[([0-9a-fA-F:]+)\]|([^:\[\]]+)):([0-9]{1,5})")
_MOST_PORTS: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What a person said about a real cluster."""

    kubeconfig: Path | None
    context: str
    nodes: tuple[str, ...]
    listen: str | None
    webhook_url: str | None
    image: str | None
    identities: tuple[str, ...]


def ground_for(where: Where | None, folder: Path, nodes: Sequence[NodeSpec]) -> Ground:
    """The cluster: an embedded one if nothing was said.

    Raises:
        InputError: An option is malformed, or names more or fewer nodes than the scenario.
    """
    if where is None:
        from cli.trial.embeddedground import EmbeddedGround

        return EmbeddedGround(folder, nodes)
    from cli.trial.realground import EVERYWHERE, IMAGE, RealGround

    if len(where.nodes) != len(nodes):
        raise InputError(
            "--node",
            f"names {len(where.nodes)} nodes, but the scenario has {len(nodes)}",
            fix="name a node of the cluster for each, in the scenario's order",
            example="--node worker-1=/var/lib/kubelet,/var/run/cdi",
        )
    named = zip(where.nodes, nodes, strict=True)
    return RealGround(
        at_context(where.kubeconfig, where.context, folder),
        [_place(text, node, folder) for text, node in named],
        image=where.image or IMAGE,
        listen=_listen(where.listen) if where.listen else EVERYWHERE,
        webhook_url=where.webhook_url,
        identities=dict(_identity(text) for text in where.identities),
    )


def _place(text: str, node: NodeSpec, folder: Path) -> Place:
    match = _NODE.fullmatch(text)
    if match is None:
        raise InputError(
            "--node",
            f"{shown(text)} is not understood",
            expected="NAME=KUBELET_DIR,CDI_DIR, or NAME alone where an agent runs already",
            example="worker-1=/var/lib/kubelet,/var/run/cdi",
        )
    name, kubelet, cdi = match.groups()
    return Place(
        spec=node,
        name=name,
        folder=folder / node.name,
        kubelet=Path(kubelet).absolute() if kubelet else None,
        cdi=Path(cdi).absolute() if cdi else None,
    )


def _listen(text: str) -> tuple[str, int]:
    match = _LISTEN.fullmatch(text)
    if match is None or int(match[3]) > _MOST_PORTS:
        raise InputError(
            "--webhook-listen", f"{shown(text)} is not understood", expected="HOST:PORT",
            example="0.0.0.0:9443",
        )  # fmt: skip
    return match[1] or match[2], int(match[3])


def _identity(text: str) -> tuple[str, Path]:
    program, equals, file = text.partition("=")
    if program not in PROGRAMS or not equals or not file:
        raise InputError(
            "--identity", f"{shown(text)} is not understood",
            expected=f"PROGRAM=KUBECONFIG with one of {', '.join(PROGRAMS)}",
            example="agent=agent.kubeconfig",
        )  # fmt: skip
    return program, Path(file).absolute()


def at_context(kubeconfig: Path | None, context: str, folder: Path) -> Path | None:
    """A kubeconfig whose current context is the wanted one; a copy in the folder if it is not.

    Raises:
        InputError: The file cannot be read, or a context was named without one.
    """
    if not context:
        return kubeconfig and kubeconfig.absolute()
    if kubeconfig is None:
        raise InputError("--context", "needs --kubeconfig FILE", example="--kubeconfig admin.conf")
    try:
        content = yaml.safe_load(kubeconfig.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"kubeconfig {kubeconfig}", f"cannot be read: {error}") from error
    names = [one.get("name") for one in (content or {}).get("contexts") or ()]
    if context not in names:
        raise InputError(
            f"kubeconfig {kubeconfig}", f"has no context {shown(context)}",
            expected=", ".join(map(str, names)) or "at least one",
        )  # fmt: skip
    copy = folder / "kubeconfig"
    copy.touch(mode=0o600)
    made = {**_with_absolute_paths(content, kubeconfig.absolute().parent),
            "current-context": context}  # fmt: skip
    copy.write_text(yaml.safe_dump(made), "utf-8")
    return copy


_FILES: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def _with_absolute_paths(content: Any, folder: Path) -> Any:
    """Files are named from where the kubeconfig lies; ``folder / path`` keeps absolute ones."""
    if isinstance(content, list):
        return [_with_absolute_paths(each, folder) for each in content]
    if not isinstance(content, dict):
        return content
    return {
        key: str(folder / value) if key in _FILES and isinstance(value, str)
        else _with_absolute_paths(value, folder)
        for key, value in content.items()
    }  # fmt: skip
