"""TLS contexts of a server, and how one is replaced while it serves.

``SSLContext.load_cert_chain`` on a context in use has two traps (measured with OpenSSL 3):
a key that does not match raises *and leaves the context broken* for every later
handshake, and an RSA certificate stays in place beside a new ECDSA one. So a context is
never changed: a fresh one is made, checked, and handed to new handshakes through the
outer context's ``sni_callback``. Open connections live on under the old one.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from certs.errors import CertificateError, Fault
from certs.leaf import find_faults
from sharing.errors import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from certs.bundle import Bundle
    from certs.leaf import Leaf

# API servers speak HTTP/1.1 to webhooks on purpose, so that calls spread over replicas
# (kubernetes#75791).
_PROTOCOLS: Final = ["http/1.1"]
_CN: Final = "commonName"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCheck:
    """Which callers may connect at all, where the API server identifies itself.

    Attributes:
        authorities: Who issues the callers' certificates.
        common_name: The caller's common name; empty to accept any that they issued.
    """

    authorities: Bundle
    common_name: str = ""

    def accepts(self, peer: Mapping[str, Any] | None) -> bool:
        """Whether a caller whom the authorities vouch for is the one wanted.

        Args:
            peer: What ``getpeercert()`` says about the caller.
        """
        if peer is None:
            return False
        # getpeercert: a tuple of relative names, each a tuple of (attribute, value).
        names = {value for part in peer.get("subject", ()) for key, value in part if key == _CN}
        return not self.common_name or names == {self.common_name}


def _shaking_hands_with(check: ClientCheck) -> type[ssl.SSLObject]:
    """Connections whose handshake fails for a caller of another name.

    OpenSSL compares who issued a caller's certificate, not whose it is; and with the handshake
    still open, not one byte of a stranger reaches the server.
    """

    class Checked(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            if not check.accepts(self.getpeercert()):
                raise ssl.SSLCertVerificationError("the caller is not the one that may call")

    return Checked


def empty_context(client_check: ClientCheck | None = None) -> ssl.SSLContext:
    """A server context without a certificate: TLS 1.2 and later, HTTP/1.1, no tickets.

    API servers never resume a session, so tickets only cost; and with a client check a
    resumed session would skip it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(_PROTOCOLS)
    if client_check is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_check.authorities.to_pem().decode("ascii"))
        context.sslobject_class = _shaking_hands_with(client_check)
    return context


def make_context(
    leaf: Leaf, *, client_check: ClientCheck | None = None, subject: str = "certificate"
) -> ssl.SSLContext:
    """A fresh context that serves this leaf; the key never touches a disk.

    Raises:
        CertificateError: The TLS library refuses the pair.
    """
    context = empty_context(client_check)
    # A memfd is anonymous memory with a name below /proc (memfd_create(2)).
    descriptor = os.memfd_create("gpu-sharing-leaf", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as memory:
            memory.write(leaf.key_pem + leaf.certificate_pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except (ssl.SSLError, OSError) as error:
        raise CertificateError(
            Fault.REFUSED,
            subject,
            f"the TLS library refuses it ({shown(getattr(error, 'reason', None) or str(error))})",
            expected="a key of at least 112 bits of security and a signature with SHA-2",
            fix="issue a P-256 certificate",
        ) from error
    finally:
        os.close(descriptor)
    return context


class HotContext:
    """What a server listens with, whatever certificate is current.

    `outer` goes to the server once; each handshake takes the newest inner context. Where
    none was accepted yet, handshakes are refused by a TLS alert.

    Args:
        clock: The time, for the check before each swap.
        client_check: Which callers may connect; None for any.
    """

    def __init__(
        self, clock: Callable[[], datetime], *, client_check: ClientCheck | None = None
    ) -> None:
        self._clock = clock
        self._client_check = client_check
        self._inner: ssl.SSLContext | None = None
        self._leaf: Leaf | None = None
        # Verification of clients follows the outer context whatever the callback does.
        self.outer = empty_context(client_check)
        self.outer.sni_callback = self._choose

    @property
    def leaf(self) -> Leaf | None:
        """What new handshakes are served with."""
        return self._leaf

    @property
    def now(self) -> datetime:
        """The time by the clock that certificates are judged by."""
        return self._clock()

    def swap(
        self,
        leaf: Leaf,
        *,
        names: Iterable[str] = (),
        authorities: Bundle | None = None,
        subject: str = "certificate",
    ) -> bool:
        """Serve new handshakes with this leaf, if it is sound; else keep the one in place.

        Args:
            leaf: The newcomer.
            names: Names that callers ask for.
            authorities: Whom callers trust; None where that is not known.
            subject: How messages call the newcomer.

        Returns:
            Whether anything changed: False if it is served already.

        Raises:
            CertificateError: The newcomer has a fault; what was served is served on.
        """
        if self._leaf is not None and self._leaf.certificate_pem == leaf.certificate_pem:
            return False
        faults = find_faults(
            leaf,
            now=self._clock(),
            names=names,
            authorities=None if authorities is None else authorities.authorities,
            subject=subject,
        )
        if faults:
            raise faults[0]
        self._inner = make_context(leaf, client_check=self._client_check, subject=subject)
        self._leaf = leaf
        return True

    def _choose(
        self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, outer: ssl.SSLContext, /
    ) -> int | None:
        """Runs at each client hello, also where the client names no server."""
        del name, outer
        if self._inner is None:
            return int(ssl.AlertDescription.ALERT_DESCRIPTION_INTERNAL_ERROR)
        connection.context = self._inner
        return None
