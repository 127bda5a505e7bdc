"""Who a caller is: bearer tokens, client certificates, else the administrator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embedded.apiserver.calls import ADMIN, User
from embedded.apiserver.status import unauthorized

_AUTHENTICATED = "system:authenticated"


def service_account(namespace: str, name: str) -> User:
    """The identity that a program has as a service account."""
    return User(
        name=f"system:serviceaccount:{namespace}:{name}",
        groups=("system:serviceaccounts", f"system:serviceaccounts:{namespace}", _AUTHENTICATED),
    )


def node(name: str) -> User:
    """The identity of a kubelet."""
    return User(name=f"system:node:{name}", groups=("system:nodes", _AUTHENTICATED))


def of_request(
    authorization: str, certificate: Mapping[str, Any] | None, tokens: Mapping[str, User]
) -> User:
    """The caller of a request.

    Args:
        authorization: The header, or nothing.
        certificate: The client's verified certificate, as ``SSLSocket.getpeercert`` gives it.
        tokens: Known bearer tokens.

    Raises:
        StatusError: 401, a token was sent that nobody has.
    """
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() == "bearer":
        user = tokens.get(token.strip())
        if user is None:
            raise unauthorized()
        return user
    if certificate:
        return _of_subject(certificate)
    return ADMIN


def _of_subject(certificate: Mapping[str, Any]) -> User:
    """CN is the name, each O a group (authentication/request/x509)."""
    pairs = [pair for rdn in certificate.get("subject", ()) for pair in rdn]
    names = [value for key, value in pairs if key == "commonName"]
    groups = tuple(value for key, value in pairs if key == "organizationName")
    if not names:
        raise unauthorized()
    return User(name=names[0], groups=(*groups, _AUTHENTICATED))
