"""A certificate authority for one run of the server, and the identities that it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE: Final = dt.timedelta(days=365)
_BACKDATED: Final = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs the server's certificate and those of its clients; its key stays in memory."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("embedded-cluster-authority", ())
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self._certificate = builder.add_extension(usage, critical=True).sign(
            self._key, hashes.SHA256()
        )

    @property
    def certificate(self) -> bytes:
        """The authority's certificate, PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, *hosts: str) -> Pair:
        """A pair for a server of these names and addresses."""
        alternatives = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
        return self._sign(_name(hosts[0], ()), ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, name: str, groups: tuple[str, ...] = ()) -> Pair:
        """A pair for a client: CN is the user, each O a group."""
        return self._sign(_name(name, groups), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _sign(
        self,
        subject: x509.Name,
        purpose: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._name, key.public_key())
        builder = builder.add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(
            certificate=certificate.public_bytes(serialization.Encoding.PEM),
            key=key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )


def server_context(pair: Pair, client_authority: bytes) -> ssl.SSLContext:
    """What the server presents; client certificates are optional and must be the authority's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    with tempfile.TemporaryDirectory(prefix="gs-tls-") as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_bytes(pair.certificate)
        key.touch(mode=0o600)
        key.write_bytes(pair.key)
        context.load_cert_chain(certificate, key)
    context.load_verify_locations(cadata=client_authority.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _name(common: str, organisations: tuple[str, ...]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in organisations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(host: str) -> x509.GeneralName:
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
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _LIFE)
    )
