"""The four patch forms."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded.apiserver.patches import apply_merge_patch, apply_strategic_patch
from tests.support.apiserver import (
    APPLY,
    JSON_PATCH,
    MERGE,
    PODS,
    STRATEGIC,
    Client,
    config_map,
    pod,
)

MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches_follow_rfc_7386(target: Any, patch: Any, result: Any) -> None:
    """Cases of the RFC's appendix A."""
    assert apply_merge_patch(target, patch) == result


@given(_JSON, _JSON)
def test_a_merge_patch_applied_twice_is_applied_once(target: Any, patch: Any) -> None:
    once = apply_merge_patch(target, patch)
    assert apply_merge_patch(once, patch) == once


def _spec(*containers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **more}}


class TestStrategic:
    BEFORE = _spec({"name": "a", "image": "1"}, {"name": "b", "image": "2"})

    def test_containers_merge_by_name(self) -> None:
        after = apply_strategic_patch(self.BEFORE, _spec({"name": "b", "image": "3"}), "V1Pod")
        assert after == _spec({"name": "a", "image": "1"}, {"name": "b", "image": "3"})

    def test_an_entry_can_be_deleted(self) -> None:
        after = apply_strategic_patch(
            self.BEFORE, _spec({"name": "a", "$patch": "delete"}), "V1Pod"
        )
        assert after == _spec({"name": "b", "image": "2"})

    def test_a_list_can_be_replaced(self) -> None:
        patch = _spec({"name": "c", "image": "9"}, {"$patch": "replace"})
        assert apply_strategic_patch(self.BEFORE, patch, "V1Pod") == _spec(
            {"name": "c", "image": "9"}
        )

    def test_a_mapping_can_be_replaced(self) -> None:
        before = {"metadata": {"labels": {"a": "1", "b": "2"}}}
        patch = {"metadata": {"labels": {"$patch": "replace", "c": "3"}}}
        assert apply_strategic_patch(before, patch, "V1Pod") == {"metadata": {"labels": {"c": "3"}}}

    def test_tolerations_are_replaced_as_a_whole(self) -> None:
        before = {"spec": {"tolerations": [{"key": "a"}]}}
        patch = {"spec": {"tolerations": [{"key": "b"}]}}
        assert apply_strategic_patch(before, patch, "V1Pod") == patch

    def test_finalizers_are_a_set(self) -> None:
        before = {"metadata": {"finalizers": ["a/b"]}}
        added = apply_strategic_patch(before, {"metadata": {"finalizers": ["c/d"]}}, "V1Pod")
        assert added["metadata"]["finalizers"] == ["a/b", "c/d"]
        removed = apply_strategic_patch(
            added, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"]}}, "V1Pod"
        )
        assert removed["metadata"]["finalizers"] == ["c/d"]

    def test_the_order_of_elements_can_be_set(self) -> None:
        patch = {
            "spec": {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "a", "image": "9"}],
            }
        }
        after = apply_strategic_patch(self.BEFORE, patch, "V1Pod")
        assert after == _spec({"name": "b", "image": "2"}, {"name": "a", "image": "9"})

    def test_retained_keys_drop_the_others(self) -> None:
        before = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
        patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
        after = apply_strategic_patch(before, patch, "V1Deployment")
        assert after == {"spec": {"strategy": {"type": "Recreate"}}}

    def test_node_conditions_merge_by_type(self) -> None:
        before = {
            "status": {
                "conditions": [{"type": "Ready", "status": "False"}],
                "capacity": {"cpu": "1"},
            }
        }
        patch = {
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "capacity": {"gpu.sharing/milli-gpu": "8000"},
            }
        }
        after = apply_strategic_patch(before, patch, "V1Node")
        assert after["status"]["conditions"] == [{"type": "Ready", "status": "True"}]
        assert after["status"]["capacity"] == {"cpu": "1", "gpu.sharing/milli-gpu": "8000"}


async def test_a_nodes_capacity_is_patched_through_its_status(api: Client) -> None:
    """The accounting resource: stored canonical, "8000" becomes "8k"."""
    await api.made("/api/v1/nodes", {"metadata": {"name": "n"}})
    patch = {"status": {"capacity": {"gpu.sharing/milli-gpu": "8000"}}}
    reply = await api.patch("/api/v1/nodes/n/status", patch, STRATEGIC)
    assert reply.body["status"]["capacity"] == {"gpu.sharing/milli-gpu": "8k"}
    bad = {"status": {"capacity": {"gpu.sharing/milli-gpu": "0.5"}}}
    assert (await api.patch("/api/v1/nodes/n/status", bad, STRATEGIC)).code == 422


async def test_a_json_patch_guards_with_test(api: Client) -> None:
    made = await api.made(MAPS, config_map("m", a="1"))
    patch = [
        {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": made["metadata"]["resourceVersion"],
        },
        {"op": "replace", "path": "/data/a", "value": "2"},
    ]
    assert (await api.patch(f"{MAPS}/m", patch, JSON_PATCH)).body["data"] == {"a": "2"}
    assert (await api.patch(f"{MAPS}/m", patch, JSON_PATCH)).code == 422


async def test_a_revision_in_a_patch_must_be_current(api: Client) -> None:
    made = await api.made(MAPS, config_map("m"))
    revision = made["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": revision}, "data": {"b": "1"}}
    assert (await api.patch(f"{MAPS}/m", patch)).code == 200
    assert (await api.patch(f"{MAPS}/m", {**patch, "data": {"b": "2"}})).code == 409


@pytest.mark.parametrize("media", ["application/json", "text/plain", ""])
async def test_a_patch_of_another_form_is_415(api: Client, media: str) -> None:
    await api.made(MAPS, config_map("m"))
    reply = await api.patch(f"{MAPS}/m", {}, media or "x")
    assert (reply.code, reply.body["reason"]) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    ("media", "body"),
    [
        (JSON_PATCH, {}),
        (JSON_PATCH, [1]),
        (JSON_PATCH, [{"op": "fly"}]),
        (MERGE, []),
        (MERGE, 5),
        (STRATEGIC, "x"),
        (STRATEGIC, {"spec": {"containers": [{"image": "x"}]}}),
        (JSON_PATCH, b"{"),
    ],
)
async def test_a_malformed_patch_is_refused_with_a_status(
    api: Client, media: str, body: Any
) -> None:
    await api.made(PODS, pod())
    reply = await api.patch(f"{PODS}/p", body, media)
    assert reply.code in {400, 422}
    assert reply.body["kind"] == "Status"


async def test_a_patch_cannot_rename(api: Client) -> None:
    await api.made(MAPS, config_map("m"))
    assert (await api.patch(f"{MAPS}/m", {"metadata": {"name": "x"}})).code == 400


class TestApply:
    """Server-side apply: owners, conflicts, force, removal."""

    @staticmethod
    def intent(**data: str) -> dict[str, Any]:
        return config_map("m", **data)

    async def test_it_creates_and_then_changes(self, api: Client) -> None:
        first = await api.patch(f"{MAPS}/m", self.intent(a="1"), APPLY, fieldManager="one")
        assert (first.code, first.body["data"]) == (201, {"a": "1"})
        line = first.body["metadata"]["managedFields"][0]
        assert (line["manager"], line["operation"]) == ("one", "Apply")
        assert line["fieldsV1"] == {"f:data": {"f:a": {}}}
        second = await api.patch(f"{MAPS}/m", self.intent(a="2"), APPLY, fieldManager="one")
        assert (second.code, second.body["data"]) == (200, {"a": "2"})

    async def test_the_manager_is_required(self, api: Client) -> None:
        assert (await api.patch(f"{MAPS}/m", self.intent(a="1"), APPLY)).code == 422

    async def test_what_is_left_out_is_removed(self, api: Client) -> None:
        await api.patch(f"{MAPS}/m", self.intent(a="1", b="2"), APPLY, fieldManager="one")
        after = await api.patch(f"{MAPS}/m", self.intent(b="2"), APPLY, fieldManager="one")
        assert after.body["data"] == {"b": "2"}

    async def test_what_somebody_else_set_stays(self, api: Client) -> None:
        await api.patch(f"{MAPS}/m", self.intent(a="1"), APPLY, fieldManager="one")
        await api.patch(f"{MAPS}/m", {"data": {"z": "9"}}, fieldManager="two")
        after = await api.patch(f"{MAPS}/m", self.intent(a="2"), APPLY, fieldManager="one")
        assert after.body["data"] == {"a": "2", "z": "9"}

    async def test_a_field_of_another_manager_is_a_conflict_unless_forced(
        self, api: Client
    ) -> None:
        await api.patch(f"{MAPS}/m", self.intent(a="1"), APPLY, fieldManager="one")
        await api.patch(f"{MAPS}/m", {"data": {"a": "9"}}, fieldManager="two")
        reply = await api.patch(f"{MAPS}/m", self.intent(a="1"), APPLY, fieldManager="one")
        assert (reply.code, reply.body["reason"]) == (409, "Conflict")
        assert reply.causes == [(".data.a", 'conflict with "two" using an update')]
        forced = await api.patch(
            f"{MAPS}/m", self.intent(a="1"), APPLY, fieldManager="one", force="true"
        )
        assert (forced.code, forced.body["data"]) == (200, {"a": "1"})

    async def test_the_same_value_is_shared_without_conflict(self, api: Client) -> None:
        await api.patch(f"{MAPS}/m", self.intent(a="1"), APPLY, fieldManager="one")
        reply = await api.patch(f"{MAPS}/m", self.intent(a="1"), APPLY, fieldManager="two")
        assert reply.code == 200
        left = await api.patch(
            f"{MAPS}/m", {"metadata": {}, **self.intent(b="1")}, APPLY, fieldManager="one"
        )
        assert left.body["data"] == {"a": "1", "b": "1"}, "two still owns a"

    async def test_an_entry_of_a_list_goes_with_its_defaults(self, api: Client) -> None:
        def intent(*names: str) -> dict[str, Any]:
            containers = [{"name": name, "image": "x:1"} for name in names]
            labels = {"a": "b"}
            return {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "d"},
                "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {"containers": containers},
                    },
                },
            }

        await api.patch(f"{DEPLOYMENTS}/d", intent("a", "b"), APPLY, fieldManager="one")
        after = await api.patch(f"{DEPLOYMENTS}/d", intent("b"), APPLY, fieldManager="one")
        containers = after.body["spec"]["template"]["spec"]["containers"]
        assert [container["name"] for container in containers] == ["b"]

    async def test_applying_the_same_again_changes_nothing(self, api: Client) -> None:
        first = await api.patch(f"{PODS}/p", pod(), APPLY, fieldManager="one")
        second = await api.patch(f"{PODS}/p", pod(), APPLY, fieldManager="one")
        assert second.body == first.body

    async def test_status_and_spec_have_their_own_owners(self, api: Client) -> None:
        await api.made("/api/v1/nodes", {"metadata": {"name": "n"}})
        body = {"apiVersion": "v1", "kind": "Node", "status": {"capacity": {"x.io/a": "1"}}}
        reply = await api.patch("/api/v1/nodes/n/status", body, APPLY, fieldManager="agent")
        assert reply.body["status"]["capacity"] == {"x.io/a": "1"}
        lines = reply.body["metadata"]["managedFields"]
        assert [line.get("subresource") for line in lines if line["manager"] == "agent"] == [
            "status"
        ]
