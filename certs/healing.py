"""What becomes of a Secret that others deleted, emptied, mixed up or half wrote.

The rule: nothing that may be in use is lost. What a replica still serves from memory, and
which of our authorities bundles still hold, is put back into the Secret before anything
else happens, so that a rotation starts from there instead of from nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from cryptography.x509.oid import NameOID

from certs.authority import AUTHORITY_NAME
from certs.bundle import Bundle
from certs.leaf import find_faults, fingerprint
from certs.schedule import MAX_AUTHORITIES
from certs.sight import live_bundles

if TYPE_CHECKING:
    from datetime import datetime

    from cryptography import x509

    from certs.leaf import Leaf
    from certs.secret import Stored
    from certs.sight import Configuration, Served

_SKEW: Final = timedelta(minutes=5)
"""By how much clocks of replicas and API servers may differ without anything being wrong."""


def is_ours(authority: x509.Certificate) -> bool:
    """Whether an authority bears the name that we give to ours."""
    names = authority.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return any(str(name.value).startswith(f"{AUTHORITY_NAME} ") for name in names)


def voucher_of(leaf: Leaf | None, trusted: Bundle) -> x509.Certificate | None:
    """The authority that signed a leaf, whether or not either is still valid."""
    return None if leaf is None else trusted.voucher_of(leaf, now=leaf.not_before)


def voucher_print(leaf: Leaf | None, trusted: Bundle) -> str:
    """The fingerprint of `voucher_of`, or nothing."""
    voucher = voucher_of(leaf, trusted)
    return "" if voucher is None else fingerprint(voucher)


def heal(
    stored: Stored,
    configurations: tuple[Configuration, ...],
    served: Served | None,
    *,
    now: datetime,
    name: str,
) -> tuple[Stored, tuple[str, ...]]:
    """The Secret with everything put back, and what had to be; nothing if it is sound.

    Args:
        stored: The Secret as read.
        configurations: The webhook configurations as read, before the Secret.
        served: What this replica serves from memory.
        now: The time.
        name: The name that callers ask for.
    """
    healed, why = stored, list[str]()
    if served is not None and _is_over(served, now, name):
        served = None
    if stored.current is None and served is not None:
        # Deleting the Secret is how people ask for a new certificate: they get one, but
        # after an orderly rotation away from what is served.
        wish = f"restored-{served.leaf.fingerprint[:12]}"
        healed = replace(healed, current=served.leaf, promoted_at=now, asked=wish)
        why.append("the certificate in use was missing and is put back")
    if stored.promoted_at is not None and stored.promoted_at > now + _SKEW:
        healed = replace(healed, promoted_at=now)
        why.append("the date of the last promotion lay in the future")
    elif healed.promoted_at is None and healed.current is not None:
        healed = replace(healed, promoted_at=now)
        why.append("the date of the last promotion was missing")
    trusted = _trusted(healed, configurations, served, now)
    if trusted.fingerprints != stored.trusted.fingerprints:
        healed = replace(healed, trusted=trusted)
        why.append("the list of authorities was not what is in use")
    # An unknown schema is no damage: two versions of us would take turns in writing theirs.
    # And where there is no certificate, the pair about to be made replaces everything.
    if stored.oddities and stored.schema_known and healed.current is not None:
        why.append("parts could not be read")
    if why:
        why.extend(stored.oddities)
    return healed, tuple(why)


def _is_over(served: Served, now: datetime, name: str) -> bool:
    """Whether callers will never again accept what is served.

    Not yet valid is not over: it means that the clock was put back, and it may return.
    """
    moment = max(now, served.leaf.not_before)
    return bool(find_faults(served.leaf, now=moment, names=[name], authorities=[served.authority]))


def _trusted(
    stored: Stored,
    configurations: tuple[Configuration, ...],
    served: Served | None,
    now: datetime,
) -> Bundle:
    """The authorities to trust: those of the leaves, those listed, and what is in use besides."""
    known = {fingerprint(one): one for one in stored.trusted}
    in_use = [
        one
        for bundle in live_bundles(configurations)
        for one in bundle.prune(now)
        if is_ours(one) and fingerprint(one) not in stored.retired
    ]
    if served is not None:
        in_use.append(served.authority)
    everybody = Bundle.of([*known.values(), *in_use])
    if len(everybody) == len(known) <= MAX_AUTHORITIES:
        return everybody
    first = {voucher_print(leaf, everybody) for leaf in (stored.current, stored.next)}
    if served is not None:
        first.add(fingerprint(served.authority))
    ranked = sorted(
        everybody,
        key=lambda one: (
            fingerprint(one) not in first,
            fingerprint(one) not in known,
            -one.not_valid_before_utc.timestamp(),
            fingerprint(one),
        ),
    )
    return Bundle.of(ranked[:MAX_AUTHORITIES])
