"""Deletion: grace, finalizers, preconditions, namespaces, owners."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.apiserver import ApiServer
from tests.support.apiserver import PODS, Client, config_map, pod

MAPS = "/api/v1/namespaces/default/configmaps"


async def bound(api: Client, name: str = "p", phase: str = "Running") -> dict[str, Any]:
    await api.made(PODS, pod(name))
    await api.create(f"{PODS}/{name}/binding", {"target": {"kind": "Node", "name": "n"}})
    reply = await api.patch(f"{PODS}/{name}/status", {"status": {"phase": phase}})
    body: dict[str, Any] = reply.body
    return body


async def test_a_pod_that_runs_nowhere_is_gone_at_once(api: Client) -> None:
    await api.made(PODS, pod())
    assert (await api.delete(f"{PODS}/p")).code == 200
    assert (await api.get(f"{PODS}/p")).code == 404


async def test_a_bound_pod_waits_for_its_kubelet(api: Client) -> None:
    """Deletion marks it with its grace period; the kubelet deletes with grace 0."""
    await bound(api)
    first = (await api.delete(f"{PODS}/p")).body["metadata"]
    assert first["deletionGracePeriodSeconds"] == 30
    assert first["deletionTimestamp"]
    assert (await api.get(f"{PODS}/p")).code == 200
    await api.delete(f"{PODS}/p", {"gracePeriodSeconds": 0, "preconditions": {"uid": first["uid"]}})
    assert (await api.get(f"{PODS}/p")).code == 404


async def test_a_second_deletion_may_shorten_the_grace_never_lengthen_it(api: Client) -> None:
    await bound(api)
    for wanted, seen in (("20", 20), ("25", 20), ("5", 5)):
        body = (await api.delete(f"{PODS}/p", gracePeriodSeconds=wanted)).body
        assert body["metadata"]["deletionGracePeriodSeconds"] == seen


async def test_a_finished_pod_needs_no_grace(api: Client) -> None:
    await bound(api, phase="Succeeded")
    await api.delete(f"{PODS}/p")
    assert (await api.get(f"{PODS}/p")).code == 404


async def test_status_can_be_written_while_a_pod_ends(api: Client) -> None:
    await bound(api)
    await api.delete(f"{PODS}/p")
    reply = await api.patch(f"{PODS}/p/status", {"status": {"phase": "Failed"}})
    assert (reply.code, reply.body["status"]["phase"]) == (200, "Failed")
    assert (await api.get(f"{PODS}/p")).code == 200


@pytest.mark.parametrize("precondition", [{"uid": "other"}, {"resourceVersion": "1"}])
async def test_a_precondition_that_does_not_hold_is_a_conflict(
    api: Client, precondition: dict[str, str]
) -> None:
    await api.made(PODS, pod())
    reply = await api.delete(f"{PODS}/p", {"preconditions": precondition})
    assert (reply.code, reply.body["reason"]) == (409, "Conflict")


async def test_an_object_with_finalizers_goes_with_the_last_of_them(api: Client) -> None:
    wanted = config_map("m")
    wanted["metadata"]["finalizers"] = ["test.io/a", "test.io/b"]
    await api.made(MAPS, wanted)
    assert (await api.delete(f"{MAPS}/m")).body["metadata"]["deletionTimestamp"]
    await api.patch(f"{MAPS}/m", {"metadata": {"finalizers": ["test.io/a"]}})
    assert (await api.get(f"{MAPS}/m")).code == 200
    await api.patch(f"{MAPS}/m", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{MAPS}/m")).code == 404


async def test_a_deletion_can_be_tried(api: Client) -> None:
    await api.made(MAPS, config_map("m"))
    assert (await api.delete(f"{MAPS}/m", {"dryRun": ["All"]})).code == 200
    assert (await api.get(f"{MAPS}/m")).code == 200


async def test_the_answer_is_a_status_with_the_uid(api: Client) -> None:
    uid = (await api.made(MAPS, config_map("m")))["metadata"]["uid"]
    body = (await api.delete(f"{MAPS}/m")).body
    assert (body["kind"], body["status"]) == ("Status", "Success")
    assert body["details"] == {"name": "m", "kind": "configmaps", "uid": uid}


async def test_a_collection_is_deleted_by_selector(api: Client) -> None:
    for name in "abc":
        wanted = config_map(name)
        wanted["metadata"]["labels"] = {"n": name}
        await api.made(MAPS, wanted)
    await api.delete(MAPS, labelSelector="n in (a,b)")
    left = (await api.get(MAPS)).body["items"]
    assert [item["metadata"]["name"] for item in left] == ["c"]


class TestNamespaces:
    async def test_it_takes_its_content_along(self, api: Client) -> None:
        await api.made("/api/v1/namespaces", {"metadata": {"name": "team"}})
        await api.made("/api/v1/namespaces/team/configmaps", config_map("m"))
        ended = (await api.delete("/api/v1/namespaces/team")).body
        assert ended["status"]["phase"] == "Terminating"
        await api.gone("/api/v1/namespaces/team")
        assert (await api.get("/api/v1/namespaces/team/configmaps/m")).code == 404

    async def test_nothing_new_is_created_in_it_while_it_ends(self, api: Client) -> None:
        await api.made("/api/v1/namespaces", {"metadata": {"name": "team"}})
        held = config_map("m")
        held["metadata"]["finalizers"] = ["test.io/hold"]
        await api.made("/api/v1/namespaces/team/configmaps", held)
        await api.delete("/api/v1/namespaces/team")
        reply = await api.create("/api/v1/namespaces/team/pods", pod())
        assert (reply.code, "because it is being terminated" in reply.body["message"]) == (
            403,
            True,
        )
        await api.patch("/api/v1/namespaces/team/configmaps/m", {"metadata": {"finalizers": None}})
        await api.gone("/api/v1/namespaces/team")

    async def test_default_is_for_ever(self, api: Client) -> None:
        assert (await api.delete("/api/v1/namespaces/default")).code == 403

    async def test_it_carries_its_name_as_a_label(self, api: Client) -> None:
        forged = {
            "metadata": {"name": "x", "labels": {"kubernetes.io/metadata.name": "kube-system"}}
        }
        made = await api.made("/api/v1/namespaces", forged)
        assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}


class TestOwners:
    def owned(self, name: str, *owners: dict[str, Any]) -> dict[str, Any]:
        wanted = config_map(name)
        wanted["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
            }
            for owner in owners
        ]
        return wanted

    async def test_dependents_follow_their_last_owner(self, api: Client) -> None:
        first = await api.made(MAPS, config_map("a"))
        second = await api.made(MAPS, config_map("b"))
        await api.made(MAPS, self.owned("one", first))
        await api.made(MAPS, self.owned("two", first, second))
        await api.delete(f"{MAPS}/a")
        await api.gone(f"{MAPS}/one")
        assert (await api.get(f"{MAPS}/two")).code == 200
        await api.delete(f"{MAPS}/b")
        await api.gone(f"{MAPS}/two")

    async def test_orphans_stay(self, api: Client, server: ApiServer) -> None:
        owner = await api.made(MAPS, config_map("a"))
        await api.made(MAPS, self.owned("one", owner))
        await api.delete(f"{MAPS}/a", propagationPolicy="Orphan")
        assert not server._lifecycle._tasks
        assert (await api.get(f"{MAPS}/one")).code == 200


class TestBindingAndEviction:
    async def test_a_pod_is_bound_once(self, api: Client) -> None:
        body = await bound(api)
        assert body["spec"]["nodeName"] == "n"
        scheduled = [c for c in body["status"]["conditions"] if c["type"] == "PodScheduled"]
        assert scheduled[0]["status"] == "True"
        reply = await api.create(f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "m"}})
        assert (reply.code, 'already assigned to node "n"' in reply.body["message"]) == (409, True)

    async def test_an_ending_pod_is_not_bound(self, api: Client) -> None:
        wanted = pod()
        wanted["metadata"]["finalizers"] = ["test.io/hold"]
        await api.made(PODS, wanted)
        await api.delete(f"{PODS}/p")
        reply = await api.create(f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "m"}})
        assert (reply.code, "is being deleted" in reply.body["message"]) == (409, True)

    async def test_an_eviction_is_a_deletion_that_budgets_may_refuse(self, api: Client) -> None:
        wanted = pod()
        wanted["metadata"]["labels"] = {"app": "x"}
        await api.made(PODS, wanted)
        await api.create(f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "n"}})
        await api.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})
        budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        await api.made(
            budgets,
            {
                "metadata": {"name": "b"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
            },
        )
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        reply = await api.create(f"{PODS}/p/eviction", eviction)
        assert (reply.code, reply.body["reason"]) == (429, "TooManyRequests")
        assert "violate the pod's disruption budget" in reply.body["message"]
        await api.delete(f"{budgets}/b")
        assert (await api.create(f"{PODS}/p/eviction", eviction)).code == 201
        assert (await api.get(f"{PODS}/p")).body["metadata"]["deletionTimestamp"]
