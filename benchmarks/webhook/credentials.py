"""Certificates for the run: the server's P-256 pair, successors, and the bundle callers trust."""

from __future__ import annotations

import os
import secrets
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from certs.authority import Authority
from certs.leaf import Leaf

SERVER_NAME: Final = "gpu-sharing-webhook.gpu-sharing.svc"
_NAMES: Final = (SERVER_NAME, "localhost", "127.0.0.1")


@dataclass(slots=True)
class Credentials:
    """A certificate and its key in files that servers watch, and successors for both.

    Each successor is of an authority of its own, and callers trust all authorities from the
    start, as they do after a rotation's first step.
    """

    folder: Path
    _waiting: list[Leaf] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path, *, successors: int) -> Credentials:
        """Fresh ones in a folder that exists."""
        made = cls(folder)
        authorities = []
        for _ in range(successors + 1):
            now = datetime.now(UTC)
            authority = Authority.make(now=now, randomness=secrets.token_bytes)
            authorities.append(authority.pem)
            leaf = authority.issue(_NAMES, now=now, randomness=secrets.token_bytes)
            made._waiting.append(leaf)
        made.authorities.write_bytes(b"".join(authorities))
        made.change()
        return made

    @property
    def authorities(self) -> Path:
        """The bundle that callers trust."""
        return self.folder / "ca.pem"

    @property
    def certificate(self) -> Path:
        """The certificate that is served now."""
        return self.folder / "tls.crt"

    @property
    def key(self) -> Path:
        """Its key."""
        return self.folder / "tls.key"

    def change(self) -> bytes:
        """Put the next pair in place; returns the certificate in DER, as a handshake shows it."""
        leaf = self._waiting.pop(0)
        for path, content in ((self.key, leaf.key_pem), (self.certificate, leaf.certificate_pem)):
            fresh = path.with_suffix(".new")
            fresh.write_bytes(content)
            os.replace(fresh, path)  # noqa: PTH105 - the pair of calls says what is meant
        return ssl.PEM_cert_to_DER_cert(leaf.certificate_pem.decode("ascii"))

    def trusting(self) -> ssl.SSLContext:
        """A client's context."""
        return ssl.create_default_context(cafile=str(self.authorities))
