"""The names under which a server is called, as a certificate carries them."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

from cryptography import x509

from sharing.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

# RFC 1123 labels, and RFC 6125 6.4.3: a wildcard only as the whole leftmost label.
_LABEL: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DNS_NAME: Final = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
_MAX_DNS_NAME: Final = 253
_LOOKS_LIKE_IPV4: Final = re.compile(r"[0-9.]+")


def service_names(
    service: str, namespace: str, *, cluster_domain: str = "cluster.local"
) -> tuple[str, ...]:
    """The names of a Service, the one that an API server asks for first.

    An API server always calls ``<service>.<namespace>.svc`` and wants it as a SAN (Kubernetes
    documentation, "Dynamic Admission Control", service reference); the others are for people
    and probes inside the cluster.
    """
    short = f"{service}.{namespace}.svc"
    return (short, service, f"{service}.{namespace}", f"{short}.{cluster_domain}")


def parse_identity(text: str) -> x509.GeneralName:
    """A host name or IP address as a subject alternative name.

    Raises:
        InputError: The text is neither.
    """
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    name = text.lower()
    # What consists of digits and dots is an address with an error in it, never a host.
    if (
        len(name) <= _MAX_DNS_NAME
        and _DNS_NAME.fullmatch(name)
        and not _LOOKS_LIKE_IPV4.fullmatch(name)
    ):
        return x509.DNSName(name)
    raise InputError(
        f"name {shown(text)}",
        "is neither a host name nor an IP address",
        expected="lower-case labels of letters, digits and hyphens joined by dots, or an address",
        example="gpu-sharing-webhook.gpu-sharing.svc",
    )


def parse_identities(names: Iterable[str]) -> tuple[x509.GeneralName, ...]:
    """Each name once, in the order given.

    Raises:
        InputError: A name is malformed, or there is none.
    """
    identities = tuple(dict.fromkeys(parse_identity(name) for name in names))
    if not identities:
        raise InputError(
            "names of the certificate",
            "none given",
            expected="at least one name under which the server is called",
            example="gpu-sharing-webhook.gpu-sharing.svc",
        )
    return identities


def covers(carried: Iterable[x509.GeneralName], name: str) -> bool:
    """Whether a certificate that carries these names answers for `name` (RFC 6125 6.4)."""
    wanted = parse_identity(name)
    names = tuple(carried)
    if wanted in names:
        return True
    if not isinstance(wanted, x509.DNSName):
        return False
    _, dot, rest = wanted.value.partition(".")
    lowered = {given.value.lower() for given in names if isinstance(given, x509.DNSName)}
    return wanted.value in lowered or bool(dot and f"*.{rest}" in lowered)
