"""What shares count for in Kueue, as its configuration says it.

Kueue admits a Job by its template, before a pod exists for the webhook to rewrite: its quota would
be in one unit and its use in another. With these transformations both are in thousandths of a GPU,
whatever the template names. Fractions and amounts of memory that only annotations say are not
seen by Kueue; they count as the plain request beside them.

Source: Kueue documentation, Configuration, ``resources.transformations``.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from sharing.api.profile import SharingProfile
from sharing.inventory import Inventory
from sharing.names import GPU, MILLI_GPU
from webhook.decision import decide
from webhook.errors import PolicyError
from webhook.offers import supply_of
from webhook.request import read_request

_PLAIN: Final = {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "1"}}}]}}


def transformations(profile: SharingProfile, inventory: Inventory) -> list[dict[str, Any]]:
    """One transformation for each resource that containers under a profile may name.

    Args:
        profile: What decides of plain requests.
        inventory: The nodes whose shares count.
    """
    offers = supply_of(inventory).room().offers
    worths = {
        candidate.resource_name: candidate.milli
        for share_class, candidate in offers.by_class.items()
        if share_class.pool == profile.spec.pool
    }
    worths.pop(GPU, None)
    with contextlib.suppress(PolicyError):
        (plain,) = decide(read_request(_PLAIN), profile, inventory).decided
        worths[GPU] = plain.solved.milli
    return [
        {"input": name, "strategy": "Replace", "outputs": {MILLI_GPU: str(worths[name])}}
        for name in sorted(worths)
    ]
