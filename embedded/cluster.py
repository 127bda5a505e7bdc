"""The embedded cluster, put together: API server, scheduler, one kubelet a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from embedded.apiserver import ADMIN, ApiServer, User, node
from embedded.kubelet.kubelet import Kubelet
from embedded.kubelet.settings import Settings
from embedded.scheduler.loop import Scheduler
from sharing.cluster.client import Client

_SCHEDULER: Final = User(name="system:kube-scheduler", groups=("system:authenticated",))


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedNode:
    """One node to start."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


class EmbeddedCluster:
    """A running cluster; an async context manager.

    Args:
        folder: For kubeconfigs and the nodes' folders. Short: unix sockets lie below it.
        nodes: The nodes.
        port: The API server's port; 0 for a free one.
        keyed_by_resource: Kubelets behave towards plugins as before Kubernetes PR #135437.
    """

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[EmbeddedNode],
        *,
        port: int = 0,
        keyed_by_resource: bool = False,
    ) -> None:
        self.folder = folder
        self.api = ApiServer(tls=True, port=port)
        self.kubelets: dict[str, Kubelet] = {}
        self._nodes = tuple(nodes)
        self._keyed_by_resource = keyed_by_resource
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.api)
            scheduler = await stack.enter_async_context(self.client(_SCHEDULER))
            await stack.enter_async_context(Scheduler(scheduler))
            for each in self._nodes:
                await self._start_kubelet(stack, each)
            self._stack = stack.pop_all()
        return self

    async def _start_kubelet(self, stack: AsyncExitStack, each: EmbeddedNode) -> None:
        client = await stack.enter_async_context(self.client(node(each.name)))
        settings = Settings(
            name=each.name,
            root=self.node_folder(each.name) / "kubelet",
            cdi_folders=(self.node_folder(each.name) / "cdi",),
            labels=each.labels,
            keyed_by_resource=self._keyed_by_resource,
            retry_s=1.0,
        )
        kubelet = Kubelet(client, settings)
        await stack.enter_async_context(kubelet)
        self.kubelets[each.name] = kubelet

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def node_folder(self, name: str) -> Path:
        """A node's own folder: ``kubelet`` and ``cdi`` lie below."""
        return self.folder / name

    def kubeconfig(self, user: User = ADMIN) -> Path:
        """A kubeconfig file of a user, below the cluster's folder."""
        name = user.name.replace(":", "-")
        return self.api.write_kubeconfig(self.folder / "kubeconfigs" / name, user)

    def client(self, user: User = ADMIN) -> Client:
        """A client with a user's identity; an async context manager."""
        return Client.from_kubeconfig(self.kubeconfig(user), user_agent=user.name.split(":")[-1])
