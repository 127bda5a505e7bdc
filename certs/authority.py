"""An authority that vouches for one leaf and is then forgotten.

Its key is never stored: each rotation makes a fresh authority, signs one leaf with it and
drops the key, so what can be stolen is one short-lived certificate for one name. Nothing
here reads a clock or draws randomness by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.errors import CertificateError, Fault
from certs.identity import parse_identities
from certs.leaf import Leaf
from sharing.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

BACKDATE: Final = timedelta(hours=1)
"""How far before its making a certificate is valid, for callers whose clock is behind."""
AUTHORITY_LIFE: Final = timedelta(days=365)
LEAF_LIFE: Final = timedelta(days=30)
AUTHORITY_NAME: Final = "gpu-sharing authority"
"""How the common name of each of our authorities begins."""

_CURVE: Final = ec.SECP256R1()
# NIST SP 800-186 3.2.1.3: the order of the group of P-256.
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
# FIPS 186-5 A.2.1 asks for 64 bits more than the order has, so that the bias is negligible.
_SEED_BYTES: Final = 40
# RFC 5280 4.1.2.2: positive and at most 20 octets, so one bit less than 160.
_SERIAL_BYTES: Final = 20


class Randomness(Protocol):
    """Gives that many unpredictable bytes; `secrets.token_bytes` outside tests."""

    def __call__(self, size: int, /) -> bytes:
        """`size` fresh bytes."""
        ...


def make_key(randomness: Randomness) -> ec.EllipticCurvePrivateKey:
    """A P-256 key from the randomness given (FIPS 186-5 A.2.1, extra random bits)."""
    seed = int.from_bytes(randomness(_SEED_BYTES), "big")
    return ec.derive_private_key(seed % (_P256_ORDER - 1) + 1, _CURVE)


def make_serial(randomness: Randomness) -> int:
    """A serial number that nobody can guess and that fits into a certificate."""
    return (int.from_bytes(randomness(_SERIAL_BYTES), "big") >> 1) or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def make(
        cls,
        *,
        now: datetime,
        randomness: Randomness,
        life: timedelta = AUTHORITY_LIFE,
        backdate: timedelta = BACKDATE,
    ) -> Authority:
        """A fresh authority, valid from `now` less `backdate` until `now` plus `life`.

        Its subject is unique, because two authorities of one name and different keys make
        verifiers try the wrong one and report that.
        """
        start = _whole_second(now)
        serial = make_serial(randomness)
        key = make_key(randomness)
        subject = _name(f"{AUTHORITY_NAME} {start:%Y-%m-%d} {serial:040x}"[:64])
        own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .serial_number(serial)
            .not_valid_before(start - backdate)
            .not_valid_after(start + life)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(own_id, critical=False)
            .add_extension(_issuer_id(own_id), critical=False)
            .sign(key, SHA256())
        )
        return cls(certificate=certificate, key=key)

    @property
    def pem(self) -> bytes:
        """The certificate, never the key."""
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(
        self,
        names: Iterable[str],
        *,
        now: datetime,
        randomness: Randomness,
        life: timedelta = LEAF_LIFE,
        backdate: timedelta = BACKDATE,
    ) -> Leaf:
        """A leaf that serves under these names and never outlives this authority.

        Raises:
            InputError: A name is malformed, or there is none.
            CertificateError: The authority has expired.
        """
        identities = parse_identities(names)
        start = _whole_second(now)
        if start >= self.certificate.not_valid_after_utc:
            raise CertificateError(
                Fault.EXPIRED,
                f"authority {shown(self.certificate.subject.rfc4514_string())}",
                f"expired at {self.certificate.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC",
                fix="make a fresh authority",
            )
        serial = make_serial(randomness)
        key = make_key(randomness)
        own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuer_id = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(f"gpu-sharing serving {serial:040x}"))
            .issuer_name(self.certificate.subject)
            .serial_number(serial)
            .not_valid_before(max(start - backdate, self.certificate.not_valid_before_utc))
            .not_valid_after(min(start + life, self.certificate.not_valid_after_utc))
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(identities), critical=False)
            .add_extension(own_id, critical=False)
            .add_extension(_issuer_id(issuer_id.value), critical=False)
            .sign(self.key, SHA256())
        )
        return Leaf(certificate=certificate, key=key)


def _whole_second(moment: datetime) -> datetime:
    """Certificates know no fractions of a second, and no zone but UTC."""
    return moment.astimezone(UTC).replace(microsecond=0)


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "gpu-sharing"),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _issuer_id(identifier: x509.SubjectKeyIdentifier) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
