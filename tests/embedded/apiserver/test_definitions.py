"""Custom resources: structural schemas, pruning, defaults, rules, printing."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.support.apiserver import APPLY, JSON_PATCH, STRATEGIC, Client
from tests.support.apiserver_webhook import Webhook, configuration, patched, rule

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/test.io/v1/widgets"

NOT_CHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
UNCHECKED = ("<nil>", NOT_CHECKED)

SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 48},
        "mode": {"type": "string", "enum": ["mps", "mig"], "default": "mps"},
        "label": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
        "port": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "parts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "count": {"type": "integer", "default": 1},
                },
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "fixed": {
            "type": "string",
            "x-kubernetes-validations": [
                {"rule": "self == oldSelf", "message": "fixed cannot change"}
            ],
        },
    },
    "x-kubernetes-validations": [
        {
            "rule": "!has(self.parts) || self.parts.map(p, p.count).sum() <= self.size",
            "messageExpression": "'parts need more than ' + string(self.size)",
        },
        {
            "rule": "self.size != 13",
            "message": "unlucky",
            "reason": "FieldValueForbidden",
            "fieldPath": ".size",
        },
    ],
}


def definition(spec: dict[str, Any] | None = None, **version: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            "spec": spec or SPEC,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    return {
        "metadata": {"name": "widgets.test.io"},
        "spec": {
            "group": "test.io",
            "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    **version,
                }
            ],
        },
    }


def widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "test.io/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"size": 4, **spec},
    }


@pytest.fixture
async def widgets(api: Client) -> Client:
    await api.made(CRDS, definition())
    return api


async def test_a_definition_is_established_and_served(widgets: Client) -> None:
    conditions = (await widgets.get(f"{CRDS}/widgets.test.io")).body["status"]["conditions"]
    assert {c["type"]: c["status"] for c in conditions} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    listed = (await widgets.get("/apis/test.io/v1")).body["resources"]
    assert [r["name"] for r in listed] == ["widgets", "widgets/status"]
    assert listed[0]["shortNames"] == ["wd"]
    assert (await widgets.get("/apis/test.io")).body["preferredVersion"]["version"] == "v1"
    assert (await widgets.get(WIDGETS)).body["kind"] == "WidgetList"


async def test_a_deleted_definition_takes_its_objects_along(widgets: Client) -> None:
    await widgets.made(WIDGETS, widget())
    assert (await widgets.delete(f"{CRDS}/widgets.test.io")).code == 200
    assert (await widgets.get(WIDGETS)).code == 404
    await widgets.made(CRDS, definition())
    assert (await widgets.get(WIDGETS)).body["items"] == []


async def test_unknown_fields_are_pruned_unless_preserved(widgets: Client) -> None:
    wanted = widget(typo=1, free={"any": {"thing": 1}}, sizes={"a": 1})
    reply = await widgets.create(WIDGETS, wanted)
    assert reply.body["spec"] == {
        "size": 4,
        "mode": "mps",
        "free": {"any": {"thing": 1}},
        "sizes": {"a": 1},
    }
    assert reply.warnings == ['unknown field \\"spec.typo\\"']
    strict = await widgets.create(WIDGETS, widget("x", typo=1), fieldValidation="Strict")
    assert strict.code == 400


async def test_defaults_reach_into_lists(widgets: Client) -> None:
    made = await widgets.made(WIDGETS, widget(parts=[{"name": "a"}]))
    assert made["spec"]["parts"] == [{"name": "a", "count": 1}]


async def test_null_where_it_is_not_allowed_counts_as_absent(widgets: Client) -> None:
    made = await widgets.made(WIDGETS, widget(mode=None))
    assert made["spec"]["mode"] == "mps"


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        (
            {"size": "4"},
            "spec.size",
            'Invalid value: "string": spec.size in body must be of type integer: "string"',
        ),
        (
            {"size": True},
            "spec.size",
            'Invalid value: "boolean": spec.size in body must be of type integer: "boolean"',
        ),
        (
            {"size": 0},
            "spec.size",
            "Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            {"size": 49},
            "spec.size",
            "Invalid value: 49: spec.size in body should be less than or equal to 48",
        ),
        ({"mode": "x"}, "spec.mode", 'Unsupported value: "x": supported values: "mps", "mig"'),
        (
            {"label": "A"},
            "spec.label",
            "Invalid value: \"A\": spec.label in body should match '^[a-z]+$'",
        ),
        ({"label": "abcdef"}, "spec.label", "Too long: may not be more than 5 bytes"),
        (
            {"label": "a\n"},
            "spec.label",
            "Invalid value: \"a\\n\": spec.label in body should match '^[a-z]+$'",
        ),
        (
            {"port": 1.5},
            "spec.port",
            'Invalid value: "number": spec.port in body must be of type integer,string: "number"',
        ),
        (
            {"sizes": {"a": "b"}},
            "spec.sizes.a",
            'Invalid value: "string": spec.sizes.a in body must be of type integer: "string"',
        ),
        ({"tags": ["a", "a"]}, "spec.tags[1]", 'Duplicate value: "a"'),
        (
            {"parts": [{"name": "a"}, {"name": "a", "count": 2}]},
            "spec.parts[1]",
            'Duplicate value: {"name":"a"}',
        ),
        (
            {"parts": [{"name": "a", "count": 9}]},
            "spec",
            'Invalid value: "object": parts need more than 4',
        ),
        ({"size": 13}, "spec.size", "Forbidden: unlucky"),
    ],
)
async def test_what_the_schema_forbids_is_422(
    widgets: Client, change: dict[str, Any], field: str, message: str
) -> None:
    reply = await widgets.create(WIDGETS, widget(**change))
    assert (reply.code, reply.body["reason"]) == (422, "Invalid")
    assert [cause for cause in reply.causes if cause != UNCHECKED] == [(field, message)]
    assert reply.body["message"].startswith('Widget.test.io "w" is invalid: ')


async def test_a_missing_field_is_required(widgets: Client) -> None:
    wanted = widget()
    del wanted["spec"]["size"]
    reply = await widgets.create(WIDGETS, wanted)
    assert reply.causes == [("spec.size", "Required value"), UNCHECKED]


async def test_transition_rules_run_on_updates_alone(widgets: Client) -> None:
    await widgets.made(WIDGETS, widget(fixed="a"))
    same = await widgets.patch(f"{WIDGETS}/w", {"spec": {"size": 5}})
    assert same.code == 200
    reply = await widgets.patch(f"{WIDGETS}/w", {"spec": {"fixed": "b"}})
    assert reply.causes == [("spec.fixed", 'Invalid value: "string": fixed cannot change')]


async def test_status_and_spec_are_kept_apart(widgets: Client) -> None:
    """A custom resource's status subresource writes nothing else, metadata included."""
    await widgets.made(WIDGETS, {**widget(), "status": {"lost": True}})
    assert "status" not in (await widgets.get(f"{WIDGETS}/w")).body
    change = {"spec": {"size": 9}, "status": {"ok": True}, "metadata": {"labels": {"a": "b"}}}
    reply = await widgets.patch(f"{WIDGETS}/w/status", change)
    assert (reply.body["status"], reply.body["spec"]["size"]) == ({"ok": True}, 4)
    assert "labels" not in reply.body["metadata"]
    assert reply.body["metadata"]["generation"] == 1
    main = await widgets.patch(f"{WIDGETS}/w", {"status": {"ok": False}, "spec": {"size": 5}})
    assert (main.body["status"], main.body["metadata"]["generation"]) == ({"ok": True}, 2)


async def test_strategic_merge_does_not_exist_for_custom_resources(widgets: Client) -> None:
    await widgets.made(WIDGETS, widget())
    assert (await widgets.patch(f"{WIDGETS}/w", {}, STRATEGIC)).code == 415


async def test_apply_merges_lists_by_the_schemas_keys(widgets: Client) -> None:
    def intent(**count: int) -> dict[str, Any]:
        return widget(size=40, parts=[{"name": k, "count": v} for k, v in count.items()])

    await widgets.patch(f"{WIDGETS}/w", intent(a=1), APPLY, fieldManager="one")
    reply = await widgets.patch(f"{WIDGETS}/w", intent(b=2), APPLY, fieldManager="two")
    assert reply.body["spec"]["parts"] == [{"name": "a", "count": 1}, {"name": "b", "count": 2}]


async def test_printer_columns_become_table_cells(api: Client) -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {
            "name": "Ready",
            "type": "string",
            "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
        },
        {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    await api.made(CRDS, definition(additionalPrinterColumns=columns))
    await api.made(WIDGETS, widget())
    await api.patch(
        f"{WIDGETS}/w/status",
        {
            "status": {
                "conditions": [
                    {"type": "Other", "status": "False"},
                    {"type": "Ready", "status": "True"},
                ]
            }
        },
    )
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = (await api.call("GET", WIDGETS, headers=accept)).body
    assert [c["name"] for c in table["columnDefinitions"]] == [
        "Name",
        "Size",
        "Ready",
        "Mode",
        "Age",
    ]
    assert table["columnDefinitions"][3]["priority"] == 1
    assert table["rows"][0]["cells"][:4] == ["w", 4, "True", "mps"]


async def test_one_object_is_served_in_every_version(api: Client) -> None:
    """Conversion strategy None: versions differ by apiVersion alone."""
    wanted = definition()
    second = {**wanted["spec"]["versions"][0], "name": "v1beta1", "storage": False}
    wanted["spec"]["versions"].append(second)
    await api.made(CRDS, wanted)
    await api.made(WIDGETS, widget())
    old = (await api.get("/apis/test.io/v1beta1/widgets/w")).body
    assert old["apiVersion"] == "test.io/v1beta1"
    assert (await api.get(f"{WIDGETS}/w")).body["apiVersion"] == "test.io/v1"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"type": "object", "properties": {"a": {}}}, "properties[spec].properties[a].type"),
        (
            {"type": "object", "properties": {"a": {"type": "text"}}},
            "properties[spec].properties[a].type",
        ),
        (
            {"type": "object", "properties": {}, "x-kubernetes-validations": [{"rule": "self."}]},
            "properties[spec].x-kubernetes-validations[0].rule",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}},
            "properties[spec].properties[a].default",
        ),
        ({"type": "array"}, "properties[spec].items"),
        (
            {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
            "properties[spec].properties[a].pattern",
        ),
    ],
)
async def test_a_schema_that_is_not_structural_is_refused(
    api: Client, spec: dict[str, Any], field: str
) -> None:
    reply = await api.create(CRDS, definition(spec))
    assert reply.code == 422
    assert reply.causes[0][0] == f"spec.versions[0].schema.openAPIV3Schema.{field}"


async def test_a_definition_is_named_plural_dot_group(api: Client) -> None:
    wanted = definition()
    wanted["metadata"]["name"] = "other.test.io"
    reply = await api.create(CRDS, wanted)
    assert ("metadata.name" in [at for at, _ in reply.causes], reply.code) == (True, 422)


async def test_a_changed_schema_counts_from_the_next_write(widgets: Client) -> None:
    narrow = {
        **SPEC,
        "properties": {**SPEC["properties"], "size": {"type": "integer", "maximum": 2}},
    }
    versions = definition(narrow)["spec"]["versions"]
    assert (
        await widgets.patch(f"{CRDS}/widgets.test.io", {"spec": {"versions": versions}})
    ).code == 200
    assert (await widgets.create(WIDGETS, widget(size=3))).code == 422


async def test_reserved_words_and_dashes_are_reachable_in_rules(api: Client) -> None:
    spec = {
        "type": "object",
        "properties": {"namespace": {"type": "string"}, "a-b": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.__namespace__ == 'x' && self.a__dash__b > 1"}],
    }
    await api.made(CRDS, definition(spec))
    good = widget()
    good["spec"] = {"namespace": "x", "a-b": 2}
    bad = {**good, "spec": {"namespace": "x", "a-b": 1}}
    assert (await api.create(WIDGETS, bad)).code == 422
    assert (await api.create(WIDGETS, good)).code == 201


async def test_an_equivalent_version_matches_a_webhooks_rule(api: Client, hook: Webhook) -> None:
    """matchPolicy Equivalent: the object arrives in the version that the rule names."""
    wanted = definition()
    second = {**wanted["spec"]["versions"][0], "name": "v1beta1", "storage": False}
    wanted["spec"]["versions"].append(second)
    await api.made(CRDS, wanted)
    old = {**rule("widgets"), "apiGroups": ["test.io"], "apiVersions": ["v1beta1"]}
    exact = hook.entry("exact.test.io", "/exact", rules=[old], matchPolicy="Exact")
    configs = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    await api.made(configs, configuration(hook.entry(rules=[old]), exact))
    label = {"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}
    hook.answers["/m"] = lambda review: patched(review, label)
    made = await api.made(WIDGETS, widget())
    assert made["apiVersion"] == "test.io/v1"
    assert made["metadata"]["labels"] == {"seen": "yes"}
    request = hook.reviews()[0]
    assert request["kind"]["version"] == request["resource"]["version"] == "v1beta1"
    assert request["requestKind"]["version"] == request["requestResource"]["version"] == "v1"
    assert request["object"]["apiVersion"] == "test.io/v1beta1"
    assert hook.reviews("/exact") == []


@pytest.mark.parametrize("levels", [120, 800])
async def test_nesting_without_end_is_refused_before_it_is_stored(
    widgets: Client, levels: int
) -> None:
    """What could be stored but not written out again would break every later list."""
    text = b'{"d":' * levels + b"1" + b"}" * levels
    body = orjson.dumps(widget()).replace(b'"size":4', b'"size":4,"free":' + text)
    reply = await widgets.create(WIDGETS, body)
    assert (reply.code, "nested" in reply.body["message"]) == (400, True)
    await widgets.made(WIDGETS, widget())
    await widgets.patch(f"{WIDGETS}/w", {"spec": {"free": {}}})
    value = orjson.loads(b'{"d":' * 60 + b"1" + b"}" * 60)
    path = "/spec/free"
    for step in range(2):
        patch = [{"op": "add", "path": f"{path}/x", "value": value}]
        last = await widgets.patch(f"{WIDGETS}/w", patch, JSON_PATCH)
        path += "/x" + "/d" * 59
        assert last.code == (200 if step == 0 else 400)
    assert (await widgets.get(WIDGETS)).code == 200
