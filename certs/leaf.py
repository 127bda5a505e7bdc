"""A certificate with its key, and everything that can be wrong with the two."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.errors import CertificateError, Fault
from certs.identity import covers
from certs.pem import KEY_EXAMPLE, load_certificate, split_pem
from sharing.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

PrivateKey = (
    ec.EllipticCurvePrivateKey
    | rsa.RSAPrivateKey
    | ed25519.Ed25519PrivateKey
    | ed448.Ed448PrivateKey
)

# Longer chains exist nowhere for a webhook; a bound keeps the search from running away.
_MAX_CHAIN: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """What a server shows (`certificate`, `chain`) and proves (`key`).

    Attributes:
        certificate: The server's own certificate.
        key: Its private key; never part of a repr.
        chain: Intermediate authorities in the order of the file.
    """

    certificate: x509.Certificate
    key: PrivateKey = field(repr=False, compare=False)
    chain: tuple[x509.Certificate, ...] = ()

    @classmethod
    def from_pem(
        cls,
        certificate_pem: bytes,
        key_pem: bytes,
        *,
        subject: str = "certificate",
        key_subject: str = "key",
    ) -> Leaf:
        """A certificate (with its chain behind it) and its key.

        Args:
            certificate_pem: The leaf first, then intermediates.
            key_pem: PKCS #8, SEC 1 or PKCS #1, not encrypted.
            subject: How messages call the certificate's source, for example a file's name.
            key_subject: The same for the key.

        Raises:
            CertificateError: Either cannot be read, or they are not a pair.
        """
        blocks = split_pem(certificate_pem, subject=subject)
        certificates = [load_certificate(block, subject=subject) for block in blocks]
        key = load_key(key_pem, subject=key_subject)
        if _public_bytes(certificates[0].public_key()) != _public_bytes(key.public_key()):
            raise CertificateError(
                Fault.MISMATCH,
                subject,
                f"does not belong to the key in {key_subject}",
                expected="the public key of the first certificate to be that of the key",
                fix="take both from one issuing; where a file holds a chain, the leaf comes first",
            )
        return cls(certificate=certificates[0], key=key, chain=tuple(certificates[1:]))

    @property
    def certificate_pem(self) -> bytes:
        """The certificate and its chain."""
        return b"".join(one.public_bytes(Encoding.PEM) for one in (self.certificate, *self.chain))

    @property
    def key_pem(self) -> bytes:
        """The key as PKCS #8, not encrypted."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def not_before(self) -> datetime:
        """From when on the certificate is valid, in UTC."""
        return self.certificate.not_valid_before_utc

    @property
    def not_after(self) -> datetime:
        """Until when the certificate is valid, in UTC."""
        return self.certificate.not_valid_after_utc

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the certificate, in hexadecimal."""
        return fingerprint(self.certificate)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the certificate carries, as text, in its order."""
        return tuple(str(name.value) for name in identities_of(self.certificate))


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 over a certificate, in hexadecimal: what makes two of them the same."""
    return certificate.fingerprint(SHA256()).hex()


def identities_of(certificate: x509.Certificate) -> tuple[x509.GeneralName, ...]:
    """The host names and addresses among the subject alternative names."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(name for name in found.value if isinstance(name, (x509.DNSName, x509.IPAddress)))


def load_key(pem: bytes, *, subject: str = "key") -> PrivateKey:
    """The one private key of a PEM text.

    Raises:
        CertificateError: There is none, more than one, or it is encrypted or no key for TLS.
    """
    blocks = split_pem(pem, subject=subject)
    keys = [block for block in blocks if block.is_private_key]
    if len(keys) != 1:
        holds = f"{len(keys)} private keys" if keys else f"a {blocks[0].label.lower()} and no key"
        raise CertificateError(
            Fault.UNREADABLE,
            subject,
            f"holds {holds}",
            expected="exactly one private key",
            fix="give the key that the certificate was issued for",
            example=KEY_EXAMPLE,
        )
    try:
        key = load_pem_private_key(keys[0].pem, password=None)
    except TypeError as error:
        raise CertificateError(
            Fault.UNREADABLE,
            subject,
            "is encrypted",
            expected="a key without a passphrase, since nobody is there to type it",
            fix="decrypt it into a file that only the server may read",
            example="openssl pkcs8 -in encrypted.pem -out key.pem",
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateError(
            Fault.UNREADABLE,
            subject,
            f"does not decode ({shown(str(error))})",
            expected="a PKCS #8, SEC 1 or PKCS #1 private key",
            fix="copy or issue it again",
            example=KEY_EXAMPLE,
        ) from error
    if not isinstance(key, PrivateKey):
        raise CertificateError(
            Fault.UNREADABLE,
            subject,
            f"is a {type(key).__name__}, with which no TLS server can identify itself",
            expected="an ECDSA, RSA or EdDSA key",
            fix="issue a P-256 key and certificate",
        )
    return key


def find_faults(
    leaf: Leaf,
    *,
    now: datetime,
    names: Iterable[str] = (),
    authorities: Sequence[x509.Certificate] | None = None,
    subject: str = "certificate",
) -> tuple[CertificateError, ...]:
    """Everything that would keep callers from accepting a leaf, gravest first.

    Args:
        leaf: What is to be served.
        now: The time at which callers look.
        names: Names that callers ask for; each must be carried.
        authorities: Whom callers trust; None where that is not known.
        subject: How messages call the leaf.
    """
    faults: list[CertificateError] = []
    faults += _date_faults(leaf, now, subject)
    faults += _purpose_faults(leaf, subject)
    carried = identities_of(leaf.certificate)
    missing = [name for name in names if not covers(carried, name)]
    if missing:
        faults.append(
            CertificateError(
                Fault.WRONG_NAME,
                subject,
                f"does not carry the name {', '.join(shown(name) for name in missing)}; "
                f"it carries {', '.join(leaf.names) or 'none'}",
                expected="each name that callers ask for among the subject alternative names",
                fix="issue it again with all names",
            )
        )
    if authorities is not None and find_chain(leaf, authorities, now=now) is None:
        issuer = leaf.certificate.issuer.rfc4514_string()
        faults.append(
            CertificateError(
                Fault.UNTRUSTED,
                subject,
                f"is not vouched for by any of the {len(authorities)} trusted authorities",
                expected=f"the authority {shown(issuer)} to be among them and valid",
                fix="add that authority to the bundle, or serve a leaf of a trusted one",
            )
        )
    return tuple(faults)


def find_chain(
    leaf: Leaf, authorities: Sequence[x509.Certificate], *, now: datetime
) -> tuple[x509.Certificate, ...] | None:
    """The certificates from the leaf's issuer up to a trusted one, or None.

    Follows what API servers do (Go, crypto/x509): signatures, dates, the right to sign, and
    path lengths; not what public web authorities have to obey beyond it.
    """
    return next(_chains((leaf.certificate,), leaf.chain, tuple(authorities), now), None)


def _chains(
    path: tuple[x509.Certificate, ...],
    intermediates: tuple[x509.Certificate, ...],
    authorities: tuple[x509.Certificate, ...],
    now: datetime,
) -> Iterator[tuple[x509.Certificate, ...]]:
    """Continue a path that begins with the leaf; the leaf itself is not part of an answer."""
    if len(path) > _MAX_CHAIN:
        return
    depth = len(path) - 1
    for issuer in authorities:
        if _vouches(issuer, path[-1], depth=depth, now=now):
            yield (*path[1:], issuer)
    for issuer in intermediates:
        if issuer not in path and _vouches(issuer, path[-1], depth=depth, now=now):
            yield from _chains((*path, issuer), intermediates, authorities, now)


def _vouches(
    issuer: x509.Certificate, certificate: x509.Certificate, *, depth: int, now: datetime
) -> bool:
    if not issuer.not_valid_before_utc <= now <= issuer.not_valid_after_utc:
        return False
    if not is_authority(issuer, depth=depth):
        return False
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def is_authority(certificate: x509.Certificate, *, depth: int = 0) -> bool:
    """Whether a certificate may sign others with `depth` authorities in between."""
    extensions = certificate.extensions
    try:
        limits = extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return False
    if not limits.ca or (limits.path_length is not None and limits.path_length < depth):
        return False
    try:
        return extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound:
        return True  # RFC 5280 4.2.1.3: without the extension every usage is allowed


def _date_faults(leaf: Leaf, now: datetime, subject: str) -> Iterator[CertificateError]:
    if now > leaf.not_after:
        yield CertificateError(
            Fault.EXPIRED,
            subject,
            f"expired at {leaf.not_after:%Y-%m-%d %H:%M:%S} UTC",
            expected=f"it to be valid at {now:%Y-%m-%d %H:%M:%S} UTC",
            fix="renew it, or put the clock right",
        )
    elif now < leaf.not_before:
        yield CertificateError(
            Fault.NOT_YET_VALID,
            subject,
            f"is valid only from {leaf.not_before:%Y-%m-%d %H:%M:%S} UTC",
            expected=f"it to be valid at {now:%Y-%m-%d %H:%M:%S} UTC",
            fix="put the clock right here or where it was issued",
        )


def _purpose_faults(leaf: Leaf, subject: str) -> Iterator[CertificateError]:
    try:
        usages = leaf.certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    allowed = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    if not allowed & set(usages):
        yield CertificateError(
            Fault.NOT_FOR_SERVING,
            subject,
            "is not issued for TLS servers",
            expected="the extended key usage serverAuth",
            fix="issue it again with that usage",
            example="usages: [server auth] in a cert-manager Certificate",
        )


def _public_bytes(key: object) -> bytes:
    if not isinstance(
        key,
        (
            ec.EllipticCurvePublicKey,
            rsa.RSAPublicKey,
            ed25519.Ed25519PublicKey,
            ed448.Ed448PublicKey,
        ),
    ):
        return b""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
