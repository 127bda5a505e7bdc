"""Where a trial takes place: all in which an embedded and a real cluster differ for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from cli.trial.scenario import NodeSpec
    from cli.trial.viewing import Seen
    from sharing.cluster.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One node of a trial.

    Attributes:
        spec: The node as the scenario wants it.
        name: Of the Node object.
        folder: The agent's files and the state of the simulated GPUs.
        kubelet: The kubelet's folder; None where somebody else's agent serves the node.
        cdi: Where the node's container runtime looks for CDI specs.
    """

    spec: NodeSpec
    name: str
    folder: Path
    kubelet: Path | None
    cdi: Path | None

    @property
    def gpus(self) -> Path:
        """The state of its simulated GPUs; its name decides their UUIDs."""
        return self.folder / f"{self.spec.name}.json"

    @property
    def pod_resources(self) -> Path | None:
        """The socket on which the kubelet says who holds which device."""
        return self.kubelet and self.kubelet / "pod-resources" / "kubelet.sock"


class Ground(Protocol):
    """A cluster to try the product on; an async context manager.

    Attributes:
        about: What it is, in words.
        lasts: Whether it outlives the trial, so that nothing may be left in it.
        listen: Host and port on which the webhook listens; port 0 is a free one.
    """

    about: str
    lasts: bool
    listen: tuple[str, int]

    async def __aenter__(self) -> Self:
        """Start it, or find it."""
        ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it, if it was started."""
        ...

    @property
    def places(self) -> Sequence[Place]:
        """The nodes, in the scenario's order."""
        ...

    def client(self) -> Client:
        """A client that may do everything; an async context manager."""
        ...

    def kubeconfig(self, program: str) -> Path | None:
        """With whose rights the webhook, the controller or the agent works; None: the usual."""
        ...

    def inside(self, program: str) -> Sequence[str]:
        """The words before a program's command line, if it runs anywhere else than here."""
        ...

    def url(self, printed: str) -> str:
        """How the API server reaches the webhook that printed this address."""
        ...

    def fitted(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """A scenario's pod so that it can run here."""
        ...

    async def namespace_made(self, client: Client, name: str) -> None:
        """Wait until pods can be created in a new namespace."""
        ...

    async def view(
        self, client: Client, place: Place, pod: tuple[str, str], container: str
    ) -> Seen | None:
        """What a container sees; ``pod`` is (namespace, name). None if it never started."""
        ...
