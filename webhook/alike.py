"""Pods that are alike: a controller makes many from one template, and they get one verdict.

A verdict on a new pod is a function of what is kept of the pod here, of what governs it and of the
inventory, and that function sees nothing else. So an answer that is remembered is the answer that
would be given again; it is forgotten with the policy or the inventory that it stands on.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import orjson

from sharing.inventory import Inventory
from webhook.admission import admit, admit_governed, is_new_pod
from webhook.policies import Governing, Policies
from webhook.review import Review
from webhook.verdict import Verdict

LONGEST: Final = 32 * 1024
"""Bytes of a review whose verdict is remembered."""
_MOST: Final = 256
"""How many are: 8 MiB at the most."""
_BESIDE: Final = frozenset({"managedFields", "ownerReferences"})
"""Metadata that says who made a pod, not what it is."""
_TOKEN_VOLUME: Final = re.compile(
    rb'"kube-api-access-[a-z0-9]{5}"(?=,"projected":|,"readOnly":true,"mountPath":"'
    rb'/var/run/secrets/kubernetes\.io/serviceaccount")'
)
_TOKEN_VOLUME_NAME: Final = b'"kube-api-access-xxxxx"'
"""The volume of the service account's token, which is named anew for each pod.

Source: kubernetes/kubernetes, plugin/pkg/admission/serviceaccount.
"""


def admit_alike(review: Review, policies: Policies, inventory: Inventory | None) -> Verdict:
    """As ``admit``, remembered for pods that are alike."""
    if not is_new_pod(review) or review.object is None:
        return admit(review, policies, inventory)
    governing = policies.profile_for(review.namespace)
    if governing.profile is None:
        return admit_governed(review.object, review.namespace, governing, inventory)
    return _remembered(_kept(review.object), review.namespace, governing, inventory)


def _kept(pod: dict[str, Any]) -> bytes:
    """All that a verdict may depend on, as JSON: name, labels, annotations, spec."""
    metadata = pod.get("metadata")
    if isinstance(metadata, dict):
        metadata = {key: value for key, value in metadata.items() if key not in _BESIDE}
    kept = orjson.dumps({"metadata": metadata, "spec": pod.get("spec")})
    return _TOKEN_VOLUME.sub(_TOKEN_VOLUME_NAME, kept)


@lru_cache(maxsize=_MOST)
def _remembered(
    kept: bytes, namespace: str, governing: Governing, inventory: Inventory | None
) -> Verdict:
    return admit_governed(orjson.loads(kept), namespace, governing, inventory)
