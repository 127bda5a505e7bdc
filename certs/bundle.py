"""The authorities that callers trust together: an API server's ``caBundle``.

Holds authorities only. A leaf in a bundle (osm#2650) verifies by accident and breaks at
its renewal; a private key in one would be published to everybody who may read the
configuration. Same authorities, same bytes: so that an unchanged bundle is recognised
and not written again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Self

from cryptography.hazmat.primitives.serialization import Encoding

from certs.errors import CertificateError, Fault
from certs.leaf import Leaf, find_chain, fingerprint, is_authority
from certs.pem import load_certificate, split_pem
from sharing.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from cryptography import x509


@dataclass(frozen=True, slots=True)
class Bundle:
    """Authorities, each once, the longest valid one last.

    Build with `of`, `parse` or `salvage`; they order and check.
    """

    authorities: tuple[x509.Certificate, ...] = ()

    @classmethod
    def of(cls, authorities: Iterable[x509.Certificate], *, subject: str = "bundle") -> Self:
        """A bundle of these authorities.

        Raises:
            CertificateError: One of them may not sign certificates.
        """
        unique = {fingerprint(authority): authority for authority in authorities}
        for authority in unique.values():
            if not is_authority(authority):
                raise CertificateError(
                    Fault.NOT_AN_AUTHORITY,
                    subject,
                    f"holds {shown(authority.subject.rfc4514_string())}, "
                    "which is no certificate authority",
                    expected="authorities only, never the server's own certificate",
                    fix="put the certificate of its issuer here",
                )
        ordered = sorted(unique.items(), key=lambda item: (item[1].not_valid_after_utc, item[0]))
        return cls(tuple(authority for _, authority in ordered))

    @classmethod
    def parse(cls, pem: bytes, *, subject: str = "bundle") -> Self:
        """The authorities of a PEM text, all of which must be sound.

        Raises:
            CertificateError: The text holds a private key, a certificate that is no authority,
                something else, or nothing.
        """
        return cls.of(
            (load_certificate(block, subject=subject) for block in split_pem(pem, subject=subject)),
            subject=subject,
        )

    @classmethod
    def salvage(cls, pem: bytes) -> Self:
        """Whatever authorities a text of unknown origin holds; nothing is an error.

        For reading what others wrote, where the answer to garbage is a repair.
        """
        return cls(_salvaged(pem))

    def to_pem(self) -> bytes:
        """The bytes of a ``caBundle`` before base64; equal bundles give equal bytes."""
        return b"".join(authority.public_bytes(Encoding.PEM) for authority in self.authorities)

    def merge(self, *others: Bundle) -> Bundle:
        """Everything that any of the bundles trusts."""
        return Bundle.of(
            authority for bundle in (self, *others) for authority in bundle.authorities
        )

    def prune(self, now: datetime) -> Bundle:
        """Without what has expired."""
        return Bundle(tuple(one for one in self.authorities if one.not_valid_after_utc >= now))

    def without(self, fingerprints: Iterable[str]) -> Bundle:
        """Without the authorities of these fingerprints."""
        dropped = frozenset(fingerprints)
        return Bundle(tuple(one for one in self.authorities if fingerprint(one) not in dropped))

    @property
    def fingerprints(self) -> frozenset[str]:
        """SHA-256 fingerprints of the authorities, in hexadecimal."""
        return frozenset(fingerprint(authority) for authority in self.authorities)

    def voucher_of(self, leaf: Leaf, *, now: datetime) -> x509.Certificate | None:
        """The trusted authority that a valid chain from the leaf ends in, or None."""
        chain = find_chain(leaf, self.authorities, now=now)
        return chain[-1] if chain else None

    def __iter__(self) -> Iterator[x509.Certificate]:
        return iter(self.authorities)

    def __len__(self) -> int:
        return len(self.authorities)


@lru_cache(maxsize=64)  # the same few bundles are looked at again and again
def _salvaged(pem: bytes) -> tuple[x509.Certificate, ...]:
    try:
        blocks = split_pem(pem, subject="bundle")
    except CertificateError:
        return ()
    found: list[x509.Certificate] = []
    for block in blocks:
        try:
            certificate = load_certificate(block, subject="bundle")
        except CertificateError:
            continue
        if is_authority(certificate):
            found.append(certificate)
    return Bundle.of(found).authorities


NOBODY: Final = Bundle()
"""The bundle that trusts nobody."""
