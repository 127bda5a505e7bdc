"""The certificate that is served, from files that may change at any time.

Contents are compared, not dates: a kubelet swaps a link to a folder, and a rotation may write the
two files one after the other. A pair is taken when it is a pair; until then the old one stays.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from certs.context import HotContext
from certs.leaf import Leaf
from sharing.errors import GpuSharingError, InputError

_POLL_S: Final = 2.0
_MOST_BYTES: Final = 2**20

_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """Where a certificate, its chain behind it, and its key are."""

    certificate: Path
    key: Path

    def read(self) -> Leaf:
        """What the files hold now.

        Raises:
            InputError: A file is missing or malformed, or the two are no pair.
        """
        return Leaf.from_pem(
            _content(self.certificate, "certificate"),
            _content(self.key, "key"),
            subject=f"certificate {self.certificate}",
            key_subject=f"key {self.key}",
        )


def utc_now() -> datetime:
    """The time by the wall clock, which goes on while a machine sleeps."""
    return datetime.now(UTC)


def serve_files(files: CertificateFiles) -> HotContext:
    """A TLS context that serves what the files hold.

    Raises:
        InputError: They hold no certificate that can be served.
    """
    context = HotContext(utc_now)
    context.swap(files.read(), subject=f"certificate {files.certificate}")
    return context


async def follow_files(
    files: CertificateFiles, context: HotContext, *, poll_s: float = _POLL_S
) -> None:
    """Serve what the files hold from now on, until cancelled.

    Args:
        files: The files to look at.
        context: What the server listens with.
        poll_s: Seconds between two looks.
    """
    complaint = ""
    while True:
        await asyncio.sleep(poll_s)
        try:
            if context.swap(files.read(), subject=f"certificate {files.certificate}"):
                _log.info("certificate was changed", not_after=str(expiry(context)))
            complaint = ""
        except GpuSharingError as error:
            if str(error) != complaint:
                _log.warning("new certificate was not taken", error=str(error))
            complaint = str(error)


def expiry(context: HotContext) -> datetime | None:
    """When the served certificate ends; None where nothing is served."""
    return None if context.leaf is None else context.leaf.not_after


def unready_reason(context: HotContext) -> str:
    """Why handshakes fail now; empty where they do not."""
    end = expiry(context)
    if end is None:
        return "there is no certificate to serve"
    return f"it expired at {end:%Y-%m-%dT%H:%M:%SZ}" if end <= utc_now() else ""


def _content(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{what} {path}", f"it cannot be read: {error.strerror}") from None
    if len(data) > _MOST_BYTES:
        raise InputError(f"{what} {path}", "it is larger than 1 MiB", expected="a PEM file")
    return data
