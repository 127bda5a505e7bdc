"""The chain that every write passes, in the order of kube-apiserver."""

from __future__ import annotations

from collections.abc import Mapping

from embedded.apiserver.admission.attributes import Attributes
from embedded.apiserver.admission.callout import CalloutClient
from embedded.apiserver.admission.plugins import check_namespace, complete_pod
from embedded.apiserver.admission.policies import Policies
from embedded.apiserver.admission.quota import check_quota
from embedded.apiserver.admission.runtimeclass import apply_class, check_overhead
from embedded.apiserver.admission.webhooks import Reinvocation, Webhooks
from embedded.apiserver.kinds import KindTable
from embedded.apiserver.objects import meta
from embedded.apiserver.store import Store

ENDPOINT_ANNOTATION = "embedded.gpu.sharing/endpoint"


class AdmissionChain:
    """Plug-ins, webhooks, policies, quota.

    Args:
        store: Where configurations, namespaces and quotas are read.
        kinds: The resources that there are.
        services: (namespace, name) → (host, port): backends of services that webhooks are
            reached by. A Service may also say it in the annotation
            ``embedded.gpu.sharing/endpoint: host:port``.
    """

    def __init__(
        self, store: Store, kinds: KindTable, services: Mapping[tuple[str, str], tuple[str, int]]
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._services = services
        self._client = CalloutClient()
        self._webhooks = Webhooks(store, kinds, self._client, self._backend)
        self._policies = Policies(store, kinds)

    async def mutate(self, attributes: Attributes) -> None:
        """See ``Admission.mutate``: at most two passes, the second where the first changed."""
        state = Reinvocation()
        self._plugins(attributes)
        await self._webhooks.mutate(attributes, state)
        if state.wanted:
            state.second = True
            self._plugins(attributes)
            await self._webhooks.mutate(attributes, state)

    def _plugins(self, attributes: Attributes) -> None:
        check_namespace(attributes, self._store, self._kinds)
        complete_pod(attributes, self._store)
        apply_class(attributes, self._store)

    async def validate(self, attributes: Attributes) -> None:
        """See ``Admission.validate``."""
        check_overhead(attributes, self._store)
        self._policies.validate(attributes)
        await self._webhooks.validate(attributes)

    def reserve(self, attributes: Attributes) -> None:
        """See ``Admission.reserve``."""
        check_quota(attributes, self._store, self._kinds)

    async def close(self) -> None:
        """End connections to webhooks."""
        await self._client.close()

    def _backend(self, namespace: str, name: str, port: int) -> tuple[str, int] | None:
        del port  # one backend for all ports of a service
        known = self._services.get((namespace, name))
        if known is not None:
            return known
        service = self._store.get("services", namespace, name)
        text = (meta(service or {}).get("annotations") or {}).get(ENDPOINT_ANNOTATION, "")
        host, _, number = str(text).rpartition(":")
        return (host, int(number)) if host and number.isdecimal() else None
