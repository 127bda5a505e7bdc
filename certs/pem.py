"""PEM as people and programs write it, taken apart strictly (RFC 7468)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cryptography import x509

from certs.errors import CertificateError, Fault
from sharing.errors import shown

CERTIFICATE_EXAMPLE: Final = "-----BEGIN CERTIFICATE----- … -----END CERTIFICATE-----"
KEY_EXAMPLE: Final = "-----BEGIN PRIVATE KEY----- … -----END PRIVATE KEY-----"
MAX_PEM_BYTES: Final = 1 << 20
"""A Secret holds no more (Kubernetes documentation, "Secrets": 1 MiB)."""

_BLOCK: Final = re.compile(
    rb"-----BEGIN (?P<label>[A-Z0-9 ]+)-----\s[^-]*?-----END (?P=label)-----", re.DOTALL
)
_BOUNDARY: Final = re.compile(rb"-----(BEGIN|END) ")


@dataclass(frozen=True, slots=True)
class Block:
    """One encapsulated object: its label and its bytes, boundaries included."""

    label: str
    pem: bytes

    @property
    def is_certificate(self) -> bool:
        """Whether the label says certificate (RFC 7468 5.1, with its old spelling)."""
        return self.label in {"CERTIFICATE", "X509 CERTIFICATE"}

    @property
    def is_private_key(self) -> bool:
        """Whether the label says private key, in whatever encoding."""
        return self.label.endswith("PRIVATE KEY")


def split_pem(pem: bytes, *, subject: str) -> tuple[Block, ...]:
    """The blocks of a PEM text in their order; text between them is explanation and dropped.

    Raises:
        CertificateError: There is no block, one is cut short, or the text is too long.
    """
    if len(pem) > MAX_PEM_BYTES:
        raise CertificateError(
            Fault.UNREADABLE,
            subject,
            f"has {len(pem)} bytes",
            expected=f"at most {MAX_PEM_BYTES} bytes",
            fix="keep only the certificates that are needed",
        )
    blocks: list[Block] = []
    outside: list[bytes] = []
    end = 0
    for match in _BLOCK.finditer(pem):
        outside.append(pem[end : match.start()])
        end = match.end()
        blocks.append(Block(match["label"].decode("ascii"), match[0] + b"\n"))
    outside.append(pem[end:])
    if any(_BOUNDARY.search(text) for text in outside):
        raise CertificateError(
            Fault.UNREADABLE,
            subject,
            "holds a PEM block that is cut short or has no matching end",
            expected="each BEGIN line to have its END line",
            fix="copy the whole file again",
            example=CERTIFICATE_EXAMPLE,
        )
    if not blocks:
        wrong = "is empty" if not pem.strip() else f"is not PEM: begins with {shown(pem[:24])}"
        raise CertificateError(
            Fault.UNREADABLE,
            subject,
            wrong,
            expected="PEM text",
            fix="convert DER with: openssl x509 -inform der -in cert.der -out cert.pem",
            example=CERTIFICATE_EXAMPLE,
        )
    return tuple(blocks)


def load_certificate(block: Block, *, subject: str) -> x509.Certificate:
    """The certificate in a block.

    Raises:
        CertificateError: The block is a private key, something else, or does not decode.
    """
    if block.is_private_key:
        raise CertificateError(
            Fault.UNREADABLE,
            subject,
            "holds a private key where a certificate belongs",
            expected="certificates only",
            fix="give the certificate here and the key in its own place, and replace the key "
            "if others could read it",
            example=CERTIFICATE_EXAMPLE,
        )
    if not block.is_certificate:
        raise CertificateError(
            Fault.UNREADABLE,
            subject,
            f"holds a {block.label.lower()}",
            expected="certificates only",
            fix="remove it" if block.label != "CERTIFICATE REQUEST" else "have the request signed",
            example=CERTIFICATE_EXAMPLE,
        )
    try:
        certificate = x509.load_pem_x509_certificate(block.pem)
        # Decoding is lazy: what a later check would trip over has to show itself here.
        _ = (certificate.extensions, certificate.subject, certificate.issuer)
        certificate.public_key()
    except Exception as error:
        raise CertificateError(
            Fault.UNREADABLE,
            subject,
            f"holds a certificate that does not decode ({shown(str(error))})",
            expected="an X.509 certificate",
            fix="copy or issue it again",
            example=CERTIFICATE_EXAMPLE,
        ) from error
    return certificate
