"""The chain that every write passes."""

from __future__ import annotations

from embedded.apiserver.admission.attributes import Attributes
from embedded.apiserver.admission.plugins import check_namespace, complete_pod
from embedded.apiserver.kinds import KindTable
from embedded.apiserver.store import Store


class AdmissionChain:
    """Plug-ins, webhooks, policies, quota, in the order of kube-apiserver.

    Args:
        store: Where configurations, namespaces and quotas are read.
        kinds: The resources that there are.
    """

    def __init__(self, store: Store, kinds: KindTable) -> None:
        self._store = store
        self._kinds = kinds

    async def mutate(self, attributes: Attributes) -> None:
        """See ``Admission.mutate``."""
        check_namespace(attributes, self._store, self._kinds)
        complete_pod(attributes, self._store)

    async def validate(self, attributes: Attributes) -> None:
        """See ``Admission.validate``."""

    def reserve(self, attributes: Attributes) -> None:
        """See ``Admission.reserve``."""

    async def close(self) -> None:
        """End connections to webhooks."""
