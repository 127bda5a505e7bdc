"""A working identity in one call, for programs that start with nothing.

The embedded cluster, the demo and a laptop need a certificate that a caller can verify
and have nobody to ask for one.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

from certs.authority import LEAF_LIFE, Authority

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta


class FreshIdentity(NamedTuple):
    """PEM of an authority, of a leaf that it vouches for, and of the leaf's key."""

    ca_pem: bytes
    leaf_pem: bytes
    key_pem: bytes


def fresh_identity(
    names: Iterable[str], now: datetime, *, life: timedelta = LEAF_LIFE
) -> FreshIdentity:
    """An authority nobody else has, and a leaf of it that serves under these names.

    The authority's key is forgotten at once, so nothing else can be issued under it.

    Args:
        names: Host names and IP addresses under which the server is called.
        now: The time, with its zone; the certificates are valid from an hour earlier.
        life: How long both are valid.

    Raises:
        InputError: A name is malformed, or there is none.
    """
    authority = Authority.make(now=now, randomness=secrets.token_bytes, life=life)
    leaf = authority.issue(names, now=now, randomness=secrets.token_bytes, life=life)
    return FreshIdentity(authority.pem, leaf.certificate_pem, leaf.key_pem)
