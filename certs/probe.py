"""A handshake as an API server makes it: does what is served verify under what is trusted?"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final

from cryptography import x509

from certs.errors import CertificateError, Fault
from sharing.errors import UnavailableError, shown

if TYPE_CHECKING:
    from certs.bundle import Bundle

# Kubernetes gives a webhook's handshake 10 s (client-go, TLSHandshakeTimeout).
TIMEOUT_S: Final = 10.0
_GOODBYE_S: Final = 1.0
# OpenSSL's X509_V_ERR_*, as Python reports them in verify_code.
_FAULTS: Final = {
    9: Fault.NOT_YET_VALID,
    10: Fault.EXPIRED,
    62: Fault.WRONG_NAME,
    64: Fault.WRONG_NAME,
    26: Fault.NOT_FOR_SERVING,
}


async def probe(
    host: str, port: int, *, name: str, authorities: Bundle, timeout_s: float = TIMEOUT_S
) -> x509.Certificate:
    """The certificate that a server shows, once it has verified.

    Args:
        host: Where to connect.
        port: Where to connect.
        name: The name that the certificate must carry.
        authorities: Whom to trust, and nobody else.
        timeout_s: For connection and handshake together, seconds.

    Raises:
        CertificateError: The server's certificate does not verify.
        UnavailableError: There is no server, or it speaks no TLS.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_verify_locations(cadata=authorities.to_pem().decode("ascii"))
    subject = f"server {host}:{port}"
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        raise CertificateError(
            _FAULTS.get(error.verify_code, Fault.UNTRUSTED),
            subject,
            f"its certificate does not verify ({shown(error.verify_message)})",
            expected=f"a valid certificate for {name} of one of {len(authorities)} authorities",
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
    return x509.load_der_x509_certificate(shown_der)


async def _leave(writer: asyncio.StreamWriter) -> None:
    """Say goodbye, and go where that is not answered."""
    writer.close()
    try:
        async with asyncio.timeout(_GOODBYE_S):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()
