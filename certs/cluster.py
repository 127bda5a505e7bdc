"""The rotation's eyes and hands: reads and writes through the Kubernetes API.

Every write names the version that the decision was made on, so that of several replicas
one wins and the others read and decide again. Configurations are read before the Secret:
then the Secret is at least as new as whatever caused the bundles that were seen.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable
from urllib.parse import urlsplit

from certs.rotation import carry_out
from certs.secret import ASK_ANNOTATION, Stored, read_secret, write_secret
from certs.sight import Configuration, is_changing
from certs.step import Make, Patch, Rest, Step, Wait, Write
from sharing.cluster.client import PatchType
from sharing.cluster.errors import ConflictError, InvalidError, NotFoundError
from sharing.cluster.kind import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from certs.authority import Randomness
    from certs.bundle import Bundle
    from certs.schedule import RotationSettings
    from certs.sight import Served
    from sharing.cluster.client import Client
    from sharing.cluster.kind import Kind

_CACHED: Final = {"resourceVersion": "0"}
"""Any version will do: the API server answers from its cache (Kubernetes API concepts, "Resource
versions"), which is where its own admission learns of configurations."""
_UNKNOWN: Final[dict[str, Any]] = {"webhooks": [{}]}
_KINDS: Final = {kind.kind: kind for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}


class Outcome(StrEnum):
    """What became of a step: the closed set of metrics."""

    DONE = "done"
    CONFLICT = "conflict"
    """Somebody else wrote meanwhile; what was made is thrown away."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the rotation's objects are.

    Attributes:
        namespace: The Secret's namespace.
        secret: The Secret's name.
        configurations: Names of webhook configurations; each is looked for in both kinds.
    """

    namespace: str = "gpu-sharing"
    secret: str = "gpu-sharing-webhook-certs"  # noqa: S105 - a Secret's name is none
    configurations: tuple[str, ...] = ("gpu-sharing",)

    @property
    def watched(self) -> tuple[tuple[Kind, str, str], ...]:
        """Kind, namespace and name of everything whose change matters."""
        return (
            (SECRETS, self.namespace, self.secret),
            *((kind, "", name) for kind in _KINDS.values() for name in self.configurations),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look found.

    Attributes:
        secret: The Secret as the API server sent it; None where there is none.
        stored: What it means.
        configurations: The webhook configurations that exist.
        cached: The same as some API server's cache has them; only while a leaf changes.
    """

    secret: dict[str, Any] | None
    stored: Stored
    configurations: tuple[Configuration, ...]
    cached: tuple[Configuration, ...] = ()


def utc_now() -> datetime:
    """The time by the wall clock, which goes on while a machine sleeps."""
    return datetime.now(UTC)


@runtime_checkable
class Dialling(Protocol):
    """A client that can make another one."""

    def anew(self) -> Client:
        """A client of its own connection, which may lead to another one of several API servers."""


class Cluster:
    """One cluster, as far as the rotation is concerned.

    Args:
        client: The connection; best a ``Dialling`` one.
        place: Where the objects are.
        clock: The time.
        randomness: For keys and serial numbers.
    """

    def __init__(
        self,
        client: Client,
        place: Place,
        *,
        clock: Callable[[], datetime] = utc_now,
        randomness: Randomness = secrets.token_bytes,
    ) -> None:
        self.client = client
        self.place = place
        self.clock = clock
        self._randomness = randomness

    async def look(self, served: Served | None = None) -> Look:
        """Everything that a decision goes by.

        Args:
            served: What is served now.

        Raises:
            ApiError: The API server refuses or does not answer.
        """
        found = await asyncio.gather(
            *(
                self._configuration(kind, name)
                for kind in _KINDS.values()
                for name in self.place.configurations
            )
        )
        secret = await self._find(SECRETS, self.place.secret, self.place.namespace)
        stored = read_secret(secret)
        configurations = tuple(one for one in found if one is not None)
        cached = await self._cached(configurations) if is_changing(stored, served) else ()
        return Look(secret=secret, stored=stored, configurations=configurations, cached=cached)

    async def _cached(self, configurations: tuple[Configuration, ...]) -> tuple[Configuration, ...]:
        """What an API server calls by, as far as one can see; one that knows nothing trusts nobody.

        Raises:
            ApiError: It does not answer.
        """
        found = []
        async with self._anew() as client:
            for one in configurations:
                path = _KINDS[one.kind].path(name=one.name)
                subject = f"get {one.kind} {one.name} from the cache"
                try:
                    item = await client.request("GET", path, query=_CACHED, subject=subject)
                except NotFoundError:
                    item = _UNKNOWN
                found.append(read_configuration(one.kind, item))
        return tuple(found)

    def _anew(self) -> AbstractAsyncContextManager[Client]:
        """A connection of its own, where the client can make one."""
        client = self.client
        return client.anew() if isinstance(client, Dialling) else nullcontext(client)

    async def carry_out(self, step: Step, look: Look, settings: RotationSettings) -> Outcome:
        """Do what was decided on that look.

        Raises:
            ApiError: The API server refuses or does not answer.
        """
        try:
            match step:
                case Make():
                    made = carry_out(
                        step, now=self.clock(), randomness=self._randomness, settings=settings
                    )
                    await self._write(made, look.secret)
                case Write():
                    await self._write(step.stored, look.secret)
                case Patch():
                    for configuration in step.configurations:
                        await self._patch(configuration, step.bundle)
                case Wait() | Rest():
                    pass
        except (ConflictError, NotFoundError):
            return Outcome.CONFLICT
        return Outcome.DONE

    async def ask(self, wish: str) -> None:
        """Ask for a rotation; whoever keeps the certificates carries it out.

        Raises:
            ApiError: The API server refuses or does not answer, or there is no such Secret.
        """
        patch = {"metadata": {"annotations": {ASK_ANNOTATION: wish}}}
        place = self.place
        await self.client.patch(SECRETS, place.secret, patch, namespace=place.namespace)

    async def _find(self, kind: Kind, name: str, namespace: str = "") -> dict[str, Any] | None:
        try:
            return await self.client.get(kind, name, namespace=namespace)
        except NotFoundError:
            return None

    async def _configuration(self, kind: Kind, name: str) -> Configuration | None:
        item = await self._find(kind, name)
        return None if item is None else read_configuration(kind.kind, item)

    async def _write(self, stored: Stored, secret: dict[str, Any] | None) -> None:
        place = self.place
        if secret is not None:
            # The resourceVersion that was read is in it: the write meets it or fails.
            await self.client.replace(SECRETS, write_secret(stored, secret))
            return
        empty = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"name": place.secret, "namespace": place.namespace},
        }
        await self.client.create(SECRETS, write_secret(stored, empty), namespace=place.namespace)

    async def _patch(self, configuration: Configuration, bundle: Bundle) -> None:
        """Set every entry's ``caBundle`` and nothing else, on the version that was read."""
        encoded = base64.b64encode(bundle.to_pem()).decode("ascii")
        version = {"op": "test", "path": "/metadata/resourceVersion"}
        operations: list[dict[str, Any]] = [{**version, "value": configuration.version}]
        operations += [
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": encoded}
            for index in range(len(configuration.bundles))
        ]
        kind = _KINDS[configuration.kind]
        try:
            await self.client.patch(kind, configuration.name, operations, patch_type=PatchType.JSON)
        except InvalidError:
            # A test that fails is answered with 422, as other faults are: look which it was.
            now = await self._configuration(kind, configuration.name)
            if now is not None and now.version == configuration.version:
                raise
            raise ConflictError(
                f"patch {configuration.kind} {configuration.name}", "it changed since it was read"
            ) from None


def read_configuration(kind: str, item: dict[str, Any]) -> Configuration:
    """A webhook configuration as the API server sent it; what is no base64 reads as nothing."""
    metadata = item.get("metadata") or {}
    version = str(metadata.get("resourceVersion", ""))
    entries = item.get("webhooks") or ()
    return Configuration(
        kind=kind,
        name=str(metadata.get("name", "")),
        version=version,
        generation=str(metadata.get("generation", version)),
        bundles=tuple(_bundle_of(entry) for entry in entries),
        webhooks=tuple(str(entry.get("name", "")) for entry in entries),
        hosts=tuple(_host_of(entry.get("clientConfig") or {}) for entry in entries),
    )


def _host_of(client: dict[str, Any]) -> str:
    """The name that API servers ask for (Kubernetes API reference, WebhookClientConfig)."""
    service = client.get("service")
    if isinstance(service, dict):
        return f"{service.get('name')}.{service.get('namespace')}.svc"
    return urlsplit(str(client.get("url", ""))).hostname or ""


def _bundle_of(entry: dict[str, Any]) -> bytes:
    encoded = (entry.get("clientConfig") or {}).get("caBundle")
    try:
        return base64.b64decode(encoded or "", validate=True)
    except (TypeError, ValueError, binascii.Error):
        return b""
