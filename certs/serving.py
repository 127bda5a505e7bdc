"""Which leaf a replica serves: the current one, but never one that callers do not trust yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from certs.healing import voucher_of
from certs.leaf import find_faults, fingerprint
from certs.sight import Served, live_bundles

if TYPE_CHECKING:
    from certs.rotation import Situation


def choose_served(situation: Situation) -> Served | None:
    """What to serve from now on; what is served already where nothing is better.

    No leaf is taken before its authority is in every bundle. Then it is taken at once by a
    replica that serves nothing of use; one that serves well takes it only after it has seen the
    authority there for as long as a bundle needs to reach all API servers; a Secret in which
    others wrote cannot hurry it.
    """
    served = situation.sight.served
    current = situation.stored.current
    if current is None or situation.faults_of(current, "tls.crt"):
        return served
    authority = voucher_of(current, situation.stored.trusted)
    if authority is None:
        return served
    if served is not None and served.leaf == current:
        return served
    needed_s = 0.0
    if served is not None and _is_useful(served, situation):
        needed_s = situation.settings.propagation.total_seconds()
    seen_s = situation.sight.held_for_s(fingerprint(authority))
    return Served(leaf=current, authority=authority) if seen_s >= needed_s else served


def _is_useful(served: Served, situation: Situation) -> bool:
    """Whether callers accept what is served, as far as a look at the bundles tells."""
    if find_faults(
        served.leaf, now=situation.now, names=[situation.name], authorities=[served.authority]
    ):
        return False
    wanted = fingerprint(served.authority)
    return all(wanted in live.fingerprints for live in live_bundles(situation.configurations))
