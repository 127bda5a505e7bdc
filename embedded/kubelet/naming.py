"""Which resource names a plugin may register.

Source: ``IsExtendedResourceName`` in pkg/apis/core/v1/helper and ``IsQualifiedName`` in
apimachinery's validation: a domain that is not Kubernetes' own, and a name that stays
legal with ``requests.`` before it, because that is how quotas spell it.
"""

from __future__ import annotations

import re
from typing import Final

_LONGEST_NAME: Final = 63
_LONGEST_DOMAIN: Final = 253
_QUOTA_PREFIX: Final = "requests."
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_DOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)


def is_extended_resource(name: str) -> bool:
    """Whether a name may be an extended resource's."""
    domain, slash, short = name.partition("/")
    if not slash or "kubernetes.io/" in name or name.startswith(_QUOTA_PREFIX):
        return False
    return (
        len(short) <= _LONGEST_NAME
        and len(_QUOTA_PREFIX + domain) <= _LONGEST_DOMAIN
        and _NAME.fullmatch(short) is not None
        and _DOMAIN.fullmatch(domain) is not None
    )
