"""A trial on an embedded cluster, which it starts and ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cli.trial.ground import Place
from cli.trial.scenario import NodeSpec
from cli.trial.viewing import REFUSED, Seen, seen
from embedded.apiserver import service_account
from embedded.cluster import EmbeddedCluster, EmbeddedNode
from sharing.cluster.client import Client

NAMESPACE: Final = "gpu-sharing"
_HOST: Final = "127.0.0.1"


class EmbeddedGround:
    """An embedded cluster.

    Args:
        folder: For everything that is written. Short: unix sockets lie below it.
        nodes: The simulated nodes.
        port: The API server's port; 0 for a free one.
    """

    about = "an embedded cluster"
    lasts = False
    listen = (_HOST, 0)

    def __init__(self, folder: Path, nodes: Sequence[NodeSpec], *, port: int = 0) -> None:
        embedded = [EmbeddedNode(name=node.name, labels=node.labels) for node in nodes]
        self.cluster = EmbeddedCluster(folder, embedded, port=port)
        self.places = tuple(self._place(node) for node in nodes)

    def _place(self, node: NodeSpec) -> Place:
        folder = self.cluster.node_folder(node.name)
        return Place(
            spec=node,
            name=node.name,
            folder=folder,
            kubelet=folder / "kubelet",
            cdi=folder / "cdi",
        )

    async def __aenter__(self) -> Self:
        await self.cluster.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.cluster.__aexit__(kind, error, trace)

    def client(self) -> Client:
        """A client with the administrator's rights."""
        return self.cluster.client()

    def kubeconfig(self, program: str) -> Path:
        """The program's own service account."""
        return self.cluster.kubeconfig(service_account(NAMESPACE, program))

    def inside(self, program: str) -> tuple[str, ...]:
        """Programs are started as they are."""
        del program
        return ()

    def url(self, printed: str) -> str:
        """The API server runs beside the webhook."""
        return printed

    def fitted(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """No image is ever pulled, no command run."""
        return manifest

    async def namespace_made(self, client: Client, name: str) -> None:
        """A pod needs no service account here."""

    async def view(
        self, client: Client, place: Place, pod: tuple[str, str], container: str
    ) -> Seen | None:
        """As the kubelet put it together."""
        del client
        found = self.cluster.kubelets[place.name].view(*pod, container)
        if found is None:
            return None
        nodes = (
            node.path if set("rw") <= set(node.permissions) else node.path + REFUSED
            for node in found.nodes
        )
        return seen(found.env, nodes, (mount.container_path for mount in found.mounts))
