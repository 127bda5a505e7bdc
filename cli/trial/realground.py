"""A trial on a cluster that is there already, and that it leaves as it found it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from cli.trial.ground import Place
from cli.trial.viewing import Seen, telling, told
from sharing.cluster import credentials
from sharing.cluster.client import Client
from sharing.cluster.errors import ApiError, NotFoundError
from sharing.cluster.kind import PODS, SERVICE_ACCOUNTS
from sharing.errors import UnavailableError

IMAGE: Final = "docker.io/library/busybox:1"
EVERYWHERE: Final = ("0.0.0.0", 0)
_PATIENCE_S: Final = 20.0
_POLL_S: Final = 0.05
_HTTPS: Final = 443
_BAD_REQUEST: Final = 400


class RealGround:
    """A cluster by its kubeconfig.

    Args:
        kubeconfig: Of somebody who may do everything; the usual one if None.
        places: The nodes, in the scenario's order.
        image: What pods run: a small one with a shell, such as busybox.
        listen: Host and port of the webhook; port 0 is a free one.
        webhook_url: How the API server reaches it; this machine's address on the way to the API
            server, if None.
        identities: Kubeconfigs of ``webhook``, ``controller`` and ``agent``; else the one above.
    """

    lasts = True

    def __init__(
        self,
        kubeconfig: Path | None,
        places: Sequence[Place],
        *,
        image: str = IMAGE,
        listen: tuple[str, int] = EVERYWHERE,
        webhook_url: str | None = None,
        identities: Mapping[str, Path] | None = None,
    ) -> None:
        self.about = f"the cluster of {kubeconfig or 'the usual kubeconfig'}"
        self.places = tuple(places)
        self.listen = listen
        self._kubeconfig = kubeconfig
        self._image = image
        self._webhook_url = webhook_url
        self._identities = dict(identities or {})
        self._own_address = ""

    async def __aenter__(self) -> Self:
        if self._webhook_url is None:
            access = await credentials.find(self._kubeconfig)()
            self._own_address = await asyncio.to_thread(_own_address, access.server)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """It goes on."""

    def client(self) -> Client:
        """A client with the rights of the kubeconfig."""
        return LogClient.from_kubeconfig(self._kubeconfig, user_agent="gpu-sharing-demo")

    def kubeconfig(self, program: str) -> Path | None:
        """The program's own, or that of the whole trial."""
        return self._identities.get(program, self._kubeconfig)

    def inside(self, program: str) -> tuple[str, ...]:
        """Programs run on this machine."""
        del program
        return ()

    def url(self, printed: str) -> str:
        """The address that was given, or ours on the way to the API server."""
        if self._webhook_url is not None:
            return self._webhook_url
        parts = urlsplit(printed)
        host = f"[{self._own_address}]" if ":" in self._own_address else self._own_address
        return f"https://{host}:{parts.port}{parts.path}"

    def fitted(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Containers run a small image and tell what they see."""
        return telling(manifest, self._image)

    async def namespace_made(self, client: Client, name: str) -> None:
        """Without its default service account a namespace takes no pods.

        Raises:
            UnavailableError: It has none after a while.
        """
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not await _has_account(client, name):  # noqa: ASYNC110 - seen by looking
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise UnavailableError(
                f"namespace {name}", f"has no service account after {_PATIENCE_S:.0f} s"
            ) from None

    async def view(
        self, client: Client, place: Place, pod: tuple[str, str], container: str
    ) -> Seen | None:
        """As the container's own log tells; waited for until it has told all."""
        del place
        if not isinstance(client, LogClient):
            raise TypeError("the client of another ground")
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while True:
                    text = await client.log(*pod, container)
                    found = None if text is None else told(text)
                    if text is None or found is not None:
                        return found
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            return None


class LogClient(Client):
    """A client that reads containers' logs too, the one answer that is no JSON."""

    async def log(self, namespace: str, pod: str, container: str) -> str | None:
        """A container's log; None if it has none, because it never started.

        Raises:
            ApiError: The API server or the kubelet does not answer.
        """
        path = PODS.path(namespace=namespace, name=pod, subresource="log")
        try:
            response = await self._send(
                "GET", path, f"read log of {namespace}/{pod}", query={"container": container}
            )
        except NotFoundError:
            return None
        except ApiError as error:
            if error.code == _BAD_REQUEST:  # "container … is waiting to start"
                return None
            raise
        async with response:
            return (await response.read()).decode("utf-8", "replace")


async def _has_account(client: Client, namespace: str) -> bool:
    try:
        await client.get(SERVICE_ACCOUNTS, "default", namespace=namespace)
    except NotFoundError:
        return False
    return True


def _own_address(server: str) -> str:
    """This machine's address on the way to a server.

    Raises:
        UnavailableError: There is no way.
    """
    parts = urlsplit(server)
    try:
        with socket.create_connection((parts.hostname, parts.port or _HTTPS), timeout=10) as way:
            return str(way.getsockname()[0])
    except OSError as error:
        raise UnavailableError("API server", f"{server} cannot be reached: {error}") from error
