"""Keys of a test cluster: one authority that signs servers and whoever a test wants to be."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE: Final = dt.timedelta(days=7)
_SKEW: Final = dt.timedelta(days=2)
"""As old as those of a real cluster: some tests put a program's clock back by a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its key, PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates into a folder of its own, where ``ca.crt`` and ``ca.key`` are its."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pair = Pair(certificate=folder / "ca.crt", key=folder / "ca.key")

    @classmethod
    def create(cls, folder: Path) -> Self:
        """A new authority; the folder is made."""
        folder.mkdir(parents=True, exist_ok=True)
        made = cls(folder)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("test-cluster")
        builder = _builder(name, name, key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        _write(made.pair, builder.sign(key, hashes.SHA256()), key)
        return made

    def lend(self, folder: Path) -> Authority:
        """The same authority, signing into another folder, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        lent = Authority(folder)
        lent.pair.certificate.write_bytes(self.pair.certificate.read_bytes())
        lent.pair.key.write_bytes(self.pair.key.read_bytes())
        return lent

    def server(self, file: str, hosts: Sequence[str]) -> Pair:
        """A serving pair for addresses and names."""
        names = [_host(host) for host in hosts]
        subject = _name(file)
        return self._sign(
            file, subject, ExtendedKeyUsageOID.SERVER_AUTH, x509.SubjectAlternativeName(names)
        )

    def client(self, file: str, user: str, groups: Sequence[str] = ()) -> Pair:
        """A client pair: Kubernetes reads the user from CN, the groups from O."""
        return self._sign(file, _name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH)

    def _sign(
        self,
        file: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        *extensions: x509.ExtensionType,
    ) -> Pair:
        issuer = x509.load_pem_x509_certificate(self.pair.certificate.read_bytes())
        signer = serialization.load_pem_private_key(self.pair.key.read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, issuer.subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        pair = Pair(certificate=self.folder / f"{file}.crt", key=self.folder / f"{file}.key")
        _write(pair, builder.sign(signer, hashes.SHA256()), key)
        return pair


def service_account_keys(folder: Path) -> Pair:
    """The pair that signs service accounts' tokens; ``certificate`` is the bare public key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pair = Pair(certificate=folder / "sa.pub", key=folder / "sa.key")
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    pair.certificate.write_bytes(public)
    pair.key.write_bytes(_pem(key))
    return pair


def _name(user: str, groups: Sequence[str] = ()) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        + [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFE)
    )


def _write(
    pair: Pair, certificate: x509.Certificate, key: CertificateIssuerPrivateKeyTypes
) -> None:
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pair.key.write_bytes(_pem(key))


def _pem(key: CertificateIssuerPrivateKeyTypes) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
