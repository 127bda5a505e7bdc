"""A handshake as an API server makes it: does what is served verify under what is trusted?"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final

from cryptography import x509

from certs.errors import CertificateError, Fault
from sharing.errors import UnavailableError, shown

if TYPE_CHECKING:
    from datetime import datetime

    from certs.bundle import Bundle

# Kubernetes gives a webhook's handshake 10 s (client-go, TLSHandshakeTimeout).
TIMEOUT_S: Final = 10.0
_GOODBYE_S: Final = 1.0
_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL's x509_vfy.h, for which Python has no name."""
# OpenSSL's X509_V_ERR_*, as Python reports them in verify_code.
_FAULTS: Final = {
    9: Fault.NOT_YET_VALID,
    10: Fault.EXPIRED,
    62: Fault.WRONG_NAME,
    64: Fault.WRONG_NAME,
    26: Fault.NOT_FOR_SERVING,
}


async def probe(
    host: str,
    port: int,
    *,
    name: str,
    authorities: Bundle | None,
    now: datetime | None = None,
    timeout_s: float = TIMEOUT_S,
) -> x509.Certificate:
    """The certificate that a server shows, once it has verified.

    Args:
        host: Where to connect.
        port: Where to connect.
        name: The name that the certificate must carry.
        authorities: Whom to trust, and nobody else; None where that is not known, so that only
            the handshake itself is judged.
        now: The time by which the certificate is judged; this machine's if None.
        timeout_s: For connection and handshake together, seconds.

    Raises:
        CertificateError: The server's certificate does not verify.
        UnavailableError: There is no server, or it speaks no TLS.
    """
    context = _context(authorities, now)
    subject = f"server {host}:{port}"
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        raise CertificateError(
            _FAULTS.get(error.verify_code, Fault.UNTRUSTED),
            subject,
            f"its certificate does not verify ({shown(error.verify_message)})",
            expected=f"a valid certificate for {name}, of an authority that is trusted",
            fix="compare with: gpu-sharing certs status",
        ) from error
    except (OSError, TimeoutError) as error:
        raise UnavailableError(
            subject,
            f"no TLS connection ({shown(str(error) or type(error).__name__)})",
            fix="check that it runs and that the port is the HTTPS one",
        ) from error
    shown_der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    await _leave(writer)
    certificate = x509.load_der_x509_certificate(shown_der)
    if now is not None:
        _check_dates(certificate, now, subject)
    return certificate


def _context(authorities: Bundle | None, now: datetime | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if authorities is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if now is not None:
        # The TLS library knows this machine's clock alone.
        context.verify_flags |= _NO_CHECK_TIME
        authorities = authorities.prune(now)
    if len(authorities):
        context.load_verify_locations(cadata=authorities.to_pem().decode("ascii"))
    return context


def _check_dates(certificate: x509.Certificate, now: datetime, subject: str) -> None:
    if certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        return
    is_over = now > certificate.not_valid_after_utc
    raise CertificateError(
        Fault.EXPIRED if is_over else Fault.NOT_YET_VALID,
        subject,
        f"its certificate is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M:%S} to "
        f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC",
        expected=f"it to be valid at {now:%Y-%m-%d %H:%M:%S} UTC",
        fix="compare with: gpu-sharing certs status",
    )


async def _leave(writer: asyncio.StreamWriter) -> None:
    """Say goodbye, and go where that is not answered."""
    writer.close()
    try:
        async with asyncio.timeout(_GOODBYE_S):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()
