"""Certificates of every kind that people hand in, made with the library alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.authority import Authority
from certs.leaf import Leaf, PrivateKey

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
NAME = "gpu-sharing-webhook.gpu-sharing.svc"
RSA_KEY = rsa.generate_private_key(65537, 2048)
SHORT_RSA_KEY = rsa.generate_private_key(65537, 1024)  # noqa: S505 - has to be refused
ED25519_KEY = ed25519.Ed25519PrivateKey.generate()
DSA_KEY = dsa.generate_private_key(1024)  # noqa: S505 - has to be refused


def make_authority(
    seed: int = 0, *, now: datetime = NOW, life: timedelta = timedelta(days=365)
) -> Authority:
    return Authority.make(now=now, randomness=random.Random(seed).randbytes, life=life)


def make_leaf(
    *names: str, seed: int = 1, now: datetime = NOW, life: timedelta = timedelta(days=30)
) -> tuple[Authority, Leaf]:
    authority = make_authority(seed, now=now, life=life)
    randomness = random.Random(seed + 10_000).randbytes
    leaf = authority.issue(names or [NAME], now=now, randomness=randomness, life=life)
    return authority, leaf


@dataclass(kw_only=True)
class Recipe:
    """A certificate as somebody else would make it."""

    key: PrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    subject: str = "foreign"
    names: tuple[str, ...] = (NAME,)
    now: datetime = NOW
    life: timedelta = timedelta(days=10)
    ca: bool | None = None
    path_length: int | None = None
    signs: bool | None = None
    usages: tuple[x509.ObjectIdentifier, ...] = (ExtendedKeyUsageOID.SERVER_AUTH,)

    def sign(self, issuer: Recipe | None = None) -> x509.Certificate:
        by = issuer or self
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(self.subject))
            .issuer_name(_name(by.subject))
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now)
            .not_valid_after(self.now + self.life)
            .public_key(self.key.public_key())
        )
        if self.names:
            names = [x509.DNSName(name) for name in self.names]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if self.usages and not self.ca:
            builder = builder.add_extension(x509.ExtendedKeyUsage(self.usages), critical=False)
        if self.ca is not None:
            constraints = x509.BasicConstraints(ca=self.ca, path_length=self.path_length)
            builder = builder.add_extension(constraints, critical=True)
        if self.signs is not None:
            usage = x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=self.signs,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                crl_sign=False,
                encipher_only=False,
                decipher_only=False,
            )
            builder = builder.add_extension(usage, critical=True)
        algorithm = None if isinstance(by.key, ed25519.Ed25519PrivateKey) else SHA256()
        return builder.sign(by.key, algorithm)


def pem_of(*certificates: x509.Certificate) -> bytes:
    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates)


def key_pem_of(
    key: PrivateKey | dsa.DSAPrivateKey,
    *,
    style: PrivateFormat = PrivateFormat.PKCS8,
    passphrase: bytes = b"",
) -> bytes:
    encryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return key.private_bytes(Encoding.PEM, style, encryption)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
