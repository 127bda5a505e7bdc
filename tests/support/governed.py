"""The webhook with its registration and its policies, beside an API server, embedded or real."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import trustme

from sharing.api.profile import SharingProfile
from sharing.cluster.client import Client
from sharing.cluster.errors import ApiError, NotFoundError
from sharing.cluster.kind import MUTATING_WEBHOOKS, NAMESPACES, PODS, Kind
from sharing.names import GRANTS_ANNOTATION
from tests.support.admission import Served, serving
from tests.support.judging import H100S, container, pod
from webhook.guardpolicies import guard_policies
from webhook.policies import Policies
from webhook.registration import client_by_url, configuration, template_rules
from webhook.snapshot import Snapshot

_GROUP: Final = "admissionregistration.k8s.io"
_PATIENCE_S: Final = 10.0
_POLICIES: Final = {
    kind: Kind(kind=kind, plural=plural, group=_GROUP, namespaced=False)
    for kind, plural in {
        "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    }.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Governed:
    """An API server that asks our webhook."""

    client: Client
    """Of an administrator."""
    served: Served
    namespaces: Mapping[str, str]
    """Their names, by what the test calls them."""

    async def refused(self, kind: Kind, item: Mapping[str, Any], namespace: str) -> str:
        """Why an object is not created; empty where it is, and then it is gone again."""
        try:
            made = await self.client.create(kind, dict(item), namespace=namespace)
        except ApiError as error:
            return error.message
        await self.client.delete(kind, made["metadata"]["name"], namespace=namespace)
        return ""


@asynccontextmanager
async def governed(
    client: Client, labels: Mapping[str, Mapping[str, str]], *profiles: SharingProfile
) -> AsyncIterator[Governed]:
    """Serve, register and guard; everything is taken back at the end.

    Args:
        client: An administrator's connection.
        labels: The labels that govern namespaces, by what the test calls them; the first
            one's policy enforces.
        profiles: Known to the webhook besides the built-in ones.
    """
    authority = trustme.CA()
    async with serving(authority) as served, contextlib.AsyncExitStack() as stack:
        names = {}
        for called, own in labels.items():
            item = {"metadata": {"generateName": f"{called}-", "labels": dict(own)}}
            names[called] = await _put(client, NAMESPACES, item, stack)
        known = {names[called]: labels[called] for called in names}
        policies = Policies(namespaces=known, profiles={one.name: one for one in profiles})
        served.current[0] = Snapshot(policies=policies, inventory=H100S)
        for manifest in guard_policies():
            await _put(client, _POLICIES[manifest["kind"]], manifest, stack)
        url = f"https://localhost:{served.server.port}/mutate"
        reached = client_by_url(url, authority.cert_pem.bytes())
        rules = template_rules(["jobset"])
        item = configuration(reached, hide_gpus=True, templates=rules)
        await _put(client, MUTATING_WEBHOOKS, item, stack)
        made = Governed(client=client, served=served, namespaces=names)
        async with asyncio.timeout(_PATIENCE_S):
            while not await _is_in_force(made):  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.05)
        yield made


async def _put(
    client: Client, kind: Kind, item: Mapping[str, Any], stack: contextlib.AsyncExitStack
) -> str:
    made = await client.create(kind, dict(item))
    name: str = made["metadata"]["name"]

    async def take_back() -> None:
        with contextlib.suppress(NotFoundError):
            await client.delete(kind, name)

    stack.push_async_callback(take_back)
    return name


async def _is_in_force(made: Governed) -> bool:
    """Whether webhook and policies answer: API servers take some time to see each of them."""
    first = next(iter(made.namespaces.values()))
    asking = pod(container(limits={"nvidia.com/gpu": "1"}))
    naming = pod(container(limits={"x.gpu.sharing/gpu": "1"}))
    opening = pod(container(), annotations={"cdi.k8s.io/x": "nvidia.com/gpu=all"})
    tried = await made.client.create(PODS, asking, namespace=first, dry_run=True)
    if GRANTS_ANNOTATION not in tried["metadata"].get("annotations", {}):
        return False
    return bool(
        await made.refused(PODS, naming, "default") and await made.refused(PODS, opening, first)
    )
