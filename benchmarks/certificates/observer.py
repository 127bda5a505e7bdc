"""Whether anything is ever served whose authority is not in the live bundle.

The bundle is read, each replica is asked for its certificate by a handshake, and the bundle is
read again. Both readings have to hold the authority of what was shown: trust comes before service,
and goes after it. Signatures are checked here by the library alone, not by the rotation's code.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from benchmarks.certificates.replica import NAMESPACE, SERVICE
from certs.probe import probe
from sharing.cluster.errors import ApiError
from sharing.cluster.kind import MUTATING_WEBHOOKS
from sharing.errors import GpuSharingError

if TYPE_CHECKING:
    from benchmarks.certificates.endpoints import Backend
    from sharing.cluster.client import Client

NAME: Final = f"{SERVICE}.{NAMESPACE}.svc"
_PERIOD_S: Final = 0.1
_TIMEOUT_S: Final = 3.0
_PROOF_S: Final = 1.0
"""A look that took as long as the shortest wait for API servers proves nothing: what it met may
have been trusted, served and forgotten meanwhile."""


class Observer:
    """Looks all the time; an excuse is a time in which others write the bundle.

    Args:
        client: An administrator.
        backends: Whoever runs now.
    """

    def __init__(self, client: Client, backends: Callable[[], Iterable[Backend]]) -> None:
        self._client = client
        self._backends = backends
        self.handshakes = 0
        """Those that proved something."""
        self.most_authorities = 0
        self.served: set[int] = set()
        """Serial numbers of all certificates that were seen."""
        self.violations: list[str] = []
        self.changes: list[tuple[float, str]] = []
        """When, by the monotonic clock, something else was trusted or served, and what."""
        self.longest_lag_s = 0.0
        """For how long the API server's cache was seen to lack what had been written."""
        self._excuses = 0
        self._excused = 0
        self._last: dict[str, str] = {}
        self._behind_since_s: float | None = None

    @contextmanager
    def excused(self) -> Iterator[None]:
        """Others write the bundle meanwhile, so a look that this falls into says nothing."""
        self._excuses += 1
        self._excused += 1
        try:
            yield
        finally:
            self._excused -= 1

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            with suppress(ApiError):
                await self.look()
            await asyncio.sleep(_PERIOD_S)

    async def look(self) -> None:
        """Once at every replica."""
        excuses = self._excuses
        await self._measure_lag()
        began_s = asyncio.get_running_loop().time()
        before = await self._bundles()
        shown = await asyncio.gather(*(self._shown(one) for one in self._backends()))
        after = await self._bundles()
        self._note("trusted", " ".join(sorted(_short(one.subject) for one in after[0])))
        for name, certificate in shown:
            if certificate is not None:
                self._note(f"{name} serves one of", _short(certificate.issuer))
        took_s = asyncio.get_running_loop().time() - began_s
        proves = not self._excused and excuses == self._excuses and took_s < _PROOF_S
        for name, certificate in shown:
            if certificate is None:
                continue
            self.served.add(certificate.serial_number)
            if proves:
                self.handshakes += 1
                self.violations += (
                    f"{name} serves {certificate.serial_number:x}, {what}"
                    for what in untrusted(certificate, before, after)
                )

    def _note(self, about: str, what: str) -> None:
        if self._last.get(about) != what:
            self._last[about] = what
            self.changes.append((asyncio.get_running_loop().time(), f"{about}: {what}"))

    async def _measure_lag(self) -> None:
        """Whether the cache that admission calls by is behind, and since when."""
        path = MUTATING_WEBHOOKS.path(name="gpu-sharing")
        written = await self._client.request("GET", path)
        cached = await self._client.request("GET", path, query={"resourceVersion": "0"})
        now_s = asyncio.get_running_loop().time()
        if int(cached["metadata"]["resourceVersion"]) >= int(
            written["metadata"]["resourceVersion"]
        ):
            self._behind_since_s = None
            return
        self._behind_since_s = self._behind_since_s or now_s
        self.longest_lag_s = max(self.longest_lag_s, now_s - self._behind_since_s)

    async def _bundles(self) -> list[list[x509.Certificate]]:
        item = await self._client.get(MUTATING_WEBHOOKS, "gpu-sharing")
        found = bundles_of(item)
        self.most_authorities = max(self.most_authorities, *map(len, found))
        return found

    async def _shown(self, backend: Backend) -> tuple[str, x509.Certificate | None]:
        try:
            return backend.name, await probe(
                backend.host, backend.port, name=NAME, authorities=None, timeout_s=_TIMEOUT_S
            )
        except GpuSharingError:
            return backend.name, None  # it starts, it ends, or it has nothing to show yet


def untrusted(
    certificate: x509.Certificate,
    before: Iterable[list[x509.Certificate]],
    after: Iterable[list[x509.Certificate]],
) -> list[str]:
    """By which bundles nobody trusted a certificate that was shown between two readings (pure).

    A bundle that was empty before says nothing: the very first certificate is served as soon as it
    is trusted, since nobody is served till then.
    """
    readings = [("before", bundle) for bundle in before if bundle]
    readings += [("after", bundle) for bundle in after]
    return [
        f"which a bundle of {len(bundle)} did not trust just {when}"
        for when, bundle in readings
        if not any(vouches(authority, certificate) for authority in bundle)
    ]


def bundles_of(item: dict[str, Any]) -> list[list[x509.Certificate]]:
    """What each entry of a configuration trusts."""
    found = []
    for entry in item["webhooks"]:
        pem = base64.b64decode(entry["clientConfig"].get("caBundle") or "")
        found.append(x509.load_pem_x509_certificates(pem) if pem else [])
    return found


def _short(name: x509.Name) -> str:
    """The random part of an authority's name, as much as tells them apart."""
    return name.rfc4514_string().partition("authority ")[2].partition(",")[0].rpartition(" ")[2][:6]


def vouches(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Whether an authority has signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
