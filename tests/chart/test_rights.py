"""Least rights: the programs work with what the chart grants, use all of it, and miss any of it.

The programs run under the accounts of the chart, and the API server's audit log says what they
asked for. Then each right is taken away once, and the call that needs it is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest

from sharing.cluster.client import Client, PatchType
from sharing.cluster.errors import ApiError, ForbiddenError
from tests.chart import installing, rendering, rights, working
from tests.chart.conftest import audit_log
from tests.chart.rights import ACCOUNTS, Right
from tests.cluster.access import Access
from tests.cluster.controlplane import ControlPlane
from tests.cluster.waiting import eventually, until

VALUES: Final = "default"
USER: Final = "system:serviceaccount:" + rendering.NAMESPACE
on_a_cluster = pytest.mark.cluster


@pytest.mark.parametrize("account", ACCOUNTS)
def test_no_right_is_wider_than_it_has_to_be(account: str) -> None:
    for right in rights.rights_of(account, VALUES):
        assert "*" not in (right.group, right.resource, right.verb)
        assert right.verb in ("get", "list", "watch", "create", "update", "patch")
        assert right.resource != "secrets" or right.name or right.verb == "create"
        assert right.namespace or right.resource not in ("secrets", "leases")


@pytest.mark.parametrize("values", rendering.SETS)
def test_rights_on_certificates_come_with_the_builtin_provider_alone(values: str) -> None:
    about = {right.resource for right in rights.rights_of("gpu-sharing-webhook", values)}
    builtin = values not in ("cert-manager", "cert-manager-issuer", "files")

    assert ("secrets" in about) is builtin
    assert ("mutatingwebhookconfigurations" in about) is builtin


@pytest.mark.parametrize("values", rendering.SETS)
def test_every_role_is_bound_to_a_program_that_the_tests_below_have_at_work(values: str) -> None:
    """So that no right of any value set goes untried: what a set grants, the default grants too.

    Those for people are tried by ``test_top_by_proxy``.
    """
    roles = {
        (each["kind"], each["metadata"]["name"]): each
        for each in rendering.objects(values)
        if each["kind"] in ("Role", "ClusterRole")
        and each["metadata"]["labels"]["app.kubernetes.io/component"] != "people"
    }
    bound = {
        (role["kind"], role["metadata"]["name"])
        for account in ACCOUNTS
        for role in rights.roles_of(account, values)
    }

    assert bound == roles.keys()
    for account in ACCOUNTS:
        assert rights.rights_of(account, values) <= rights.rights_of(account, VALUES)


@pytest.mark.parametrize("values", rendering.SETS)
def test_rights_are_bound_to_our_own_accounts_alone(values: str) -> None:
    subjects = [
        subject for each in rendering.objects(values) for subject in each.get("subjects", ())
    ]

    assert {subject["kind"] for subject in subjects} == {"ServiceAccount"}
    assert {subject["namespace"] for subject in subjects} == {rendering.NAMESPACE}
    assert {subject["name"] for subject in subjects} == set(ACCOUNTS)


@pytest.fixture(scope="module")
def installed(plane: ControlPlane) -> Access:
    """The chart's objects; nobody answers reviews, so those of GPU pods would be refused."""
    items = [installing.namespace(), *rendering.objects(VALUES)]
    installing.create(plane.access, items)
    for each in items:
        if each["kind"] == "CustomResourceDefinition":
            look = partial(_is_established, plane.access, installing.path_of(each))
            until(f"{each['metadata']['name']} is served", look, timeout_s=30)
    return plane.access


def _is_established(access: Access, path: str) -> bool:
    conditions = access.call("GET", path).get("status", {}).get("conditions", ())
    return ("Established", "True") in {(one["type"], one["status"]) for one in conditions}


@pytest.fixture
async def admin(installed: Access) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(installed.kubeconfig()) as client:
        yield client


async def work(account: str, access: Access, admin: Client) -> None:
    """Have the account's program do all that it does."""
    async with AsyncExitStack() as stack:
        if account == "gpu-sharing-agent":
            settings = await stack.enter_async_context(working.node(admin))
            path = installing.bound_account(access, account, working.NODE)
            client = await stack.enter_async_context(Client.from_kubeconfig(path))
            await working.agent(client, admin, settings)
            return
        path = access.service_account(rendering.NAMESPACE, account)
        client = await stack.enter_async_context(Client.from_kubeconfig(path))
        does = {
            "gpu-sharing-webhook": working.webhook,
            "gpu-sharing-controller": working.controller,
        }
        await does[account](client, admin)


@on_a_cluster
@pytest.mark.parametrize("account", ACCOUNTS)
async def test_a_program_asks_for_all_that_it_may_and_for_nothing_else(
    account: str, installed: Access, admin: Client
) -> None:
    log = audit_log(installed.folder)
    since = log.stat().st_size

    await work(account, installed, admin)

    events = installing.calls_of(log, f"{USER}:{account}", since)
    refused = [e for e in events if e["responseStatus"].get("code") == 403]
    done = {right for right in map(rights.asked, events) if right is not None}
    granted = {replace(r, namespace="", name="") for r in rights.rights_of(account, VALUES)}
    assert [(rights.asked(e), e["responseStatus"].get("message")) for e in refused] == []
    assert sorted(map(str, done)) == sorted(map(str, granted))


# -- each right taken away


async def is_allowed(client: Client, right: Right) -> bool:
    """Whether RBAC lets a call through; what becomes of it then does not matter."""
    method, path, query, body = right.call
    kind = PatchType.MERGE if method == "PATCH" else "application/json"
    try:
        await client.request(method, path, query=query, body=body, content_type=kind)
    except ForbiddenError as error:
        return "cannot " + right.verb not in error.message
    except ApiError:
        return True
    return True


async def is_refused(client: Client, right: Right) -> bool:
    return not await is_allowed(client, right)


@on_a_cluster
@pytest.mark.parametrize("account", ACCOUNTS)
async def test_without_any_one_right_the_call_that_needs_it_is_refused(
    account: str, installed: Access, admin: Client
) -> None:
    path = installed.service_account(rendering.NAMESPACE, account)
    missed = []
    async with Client.from_kubeconfig(path) as client:
        for role in rights.roles_of(account, VALUES):
            for right in rights.rights_in(role):
                assert await is_allowed(client, right), f"{account} may not {right}"
                await write(admin, rights.without(role, right))
                await eventually(f"{account} misses {right}", partial(is_refused, client, right))
                await write(admin, role)
                await eventually(f"{account} has {right}", partial(is_allowed, client, right))
                missed.append(right)

    assert set(missed) == rights.rights_of(account, VALUES)


async def write(admin: Client, role: dict[str, Any]) -> None:
    await admin.request("PUT", installing.path_of(role), body=role)
