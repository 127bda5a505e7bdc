"""The CRDs: rendered from the models, structural, and of one mind with them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from embedded.apiserver.cel import check, evaluate
from sharing.api.crd import crd_manifests, render
from sharing.api.layout import LayoutSpec
from sharing.api.profile import parse_profile
from sharing.errors import InputError
from sharing.shareclass import RESERVED_POOLS, check_pool

FOLDER = Path(__file__).parents[3] / "deploy" / "crds"
MANIFESTS = {manifest["spec"]["names"]["plural"]: manifest for manifest in crd_manifests()}


def schema_of(plural: str) -> dict[str, Any]:
    version = MANIFESTS[plural]["spec"]["versions"][0]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for child in schema.get("properties", {}).values():
        yield from nodes(child)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key])


@pytest.mark.parametrize("plural", MANIFESTS)
def test_the_file_is_what_the_models_say(plural: str) -> None:
    text = (FOLDER / f"{plural}.yaml").read_text("utf-8")
    assert text == render(MANIFESTS[plural]), "run: python -m sharing.api.crd --write deploy/crds"
    assert yaml.safe_load(text) == MANIFESTS[plural]


def test_there_is_no_other_file() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(MANIFESTS)


def test_the_command_writes_them(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sharing.api.crd", "--write", str(tmp_path / "new")]
    subprocess.run(command, check=True, timeout=60)
    assert len(list((tmp_path / "new").iterdir())) == len(MANIFESTS)


@pytest.mark.parametrize("plural", MANIFESTS)
def test_the_schema_is_structural(plural: str) -> None:
    """Kubernetes documentation, "Specifying a structural schema"."""
    for node in nodes(schema_of(plural)):
        assert "$ref" not in node
        assert "title" not in node
        assert node.get("additionalProperties") is not False
        assert not ("properties" in node and "additionalProperties" in node)
        assert "type" in node or node.get("x-kubernetes-int-or-string") is True
        if "anyOf" in node:
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}]
            assert node["x-kubernetes-int-or-string"] is True


@pytest.mark.parametrize("plural", MANIFESTS)
def test_status_is_a_subresource_and_the_object_is_cluster_scoped(plural: str) -> None:
    spec = MANIFESTS[plural]["spec"]
    assert spec["scope"] == "Cluster"
    assert spec["versions"][0]["subresources"] == {"status": {}}
    assert MANIFESTS[plural]["metadata"]["name"] == f"{plural}.gpu.sharing"


@pytest.mark.parametrize("plural", MANIFESTS)
def test_every_rule_compiles_and_names_a_field_that_exists(plural: str) -> None:
    count = 0
    for node in nodes(schema_of(plural)):
        for rule in node.get("x-kubernetes-validations", ()):
            count += 1
            assert check(rule["rule"]) == ""
            assert rule["message"]
            if "fieldPath" in rule:
                assert rule["fieldPath"].removeprefix(".") in node["properties"]
    assert count


def broken_rules(schema: dict[str, Any], value: Any) -> list[str]:
    """Messages of the rules that a value breaks, at every level."""
    found = [
        rule["message"]
        for rule in schema.get("x-kubernetes-validations", ())
        if evaluate(rule["rule"], {"self": value}) is not True
    ]
    for key, child in schema.get("properties", {}).items():
        if isinstance(value, dict) and key in value:
            found += broken_rules(child, value[key])
    if isinstance(value, list):
        found += [one for item in value for one in broken_rules(schema["items"], item)]
    return found


PROFILES: list[tuple[dict[str, Any], str]] = [
    ({"mode": "mps"}, ""),
    ({"modes": ["mig", "mps"], "minIsolation": "limits", "defaultSize": "1of4"}, ""),
    ({"modes": ["time-slicing", "mps"], "minIsolation": "limits"}, ""),
    ({"mode": "mps", "defaultSize": "1of2", "allowedSizes": ["1of2"]}, ""),
    ({"mode": "mps", "memory": {"default": "1Gi", "max": 2147483648}}, ""),
    ({"mode": "mps", "migProfile": "1g.10gb", "allowedModes": ["mig"]}, ""),
    ({"mode": "mps", "pool": "team-a"}, ""),
    ({}, "exactly one of mode and modes"),
    ({"mode": "mps", "modes": ["mig"]}, "exactly one of mode and modes"),
    ({"modes": ["mps", "mps"]}, "listed twice"),
    ({"mode": "mps", "minIsolation": "hardware"}, "minIsolation is above"),
    ({"mode": "mps", "defaultSize": "1of3", "allowedSizes": ["1of2"]}, "not among allowedSizes"),
    ({"mode": "mps", "defaultSize": "1of3", "memory": {"default": "1Gi"}}, "keep one"),
    ({"mode": "mps", "memory": {"default": "3Gi", "max": "2Gi"}}, "default is above max"),
    ({"mode": "mig", "migProfile": "1g.10gb", "migProfiles": ["2g.20gb"]}, "among migProfiles"),
    ({"mode": "mps", "migProfile": "1g.10gb"}, "can never be used"),
    ({"mode": "mps", "pool": "requests"}, "can be a pool"),
    ({"mode": "mps", "compatibility": ["hami", "kai"], "workloads": "deny"}, ""),
    ({"mode": "mps", "compatibility": ["hami", "hami"]}, "listed twice"),
    ({"mode": "mps", "compatibility": ["aliyun", "aliyun-mib"]}, "two units"),
    ({"mode": "mps", "tolerations": [{"operator": "Exists"}]}, ""),
    ({"mode": "mps", "tolerations": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}, ""),
    ({"mode": "mps", "tolerations": [{"key": "a"}, {"effect": "NoExecute"}]}, "without a key"),
    (
        {"mode": "mps", "tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        "compares no value",
    ),
    (
        {"mode": "mps", "tolerations": [{"key": "a", "tolerationSeconds": 60}]},
        "only for effect NoExecute",
    ),
]


@pytest.mark.parametrize(("spec", "words"), PROFILES)
def test_rule_and_model_agree_on_a_profile(spec: dict[str, Any], words: str) -> None:
    broken = broken_rules(schema_of("sharingprofiles")["properties"]["spec"], spec)
    if words:
        assert any(words in message for message in broken)
        with pytest.raises(InputError):
            parse_profile({"metadata": {"name": "p"}, "spec": spec})
    else:
        assert broken == []
        parse_profile({"metadata": {"name": "p"}, "spec": spec})


LAYOUTS: list[tuple[dict[str, Any], str]] = [
    ({"mode": "exclusive"}, ""),
    ({"mode": "mps", "sizes": {"1of2": 1, "1of4": 2}}, ""),
    ({"mode": "mig", "sizes": {"1g.10gb": 4, "1g.24gb+me": 1}}, ""),
    ({"mode": "exclusive", "sizes": {"1of2": 1}}, "has no sizes"),
    ({"mode": "mps"}, "need sizes"),
    ({"mode": "time-slicing", "sizes": {}}, "need sizes"),
    ({"mode": "mps", "sizes": {"1of49": 1}}, "need sizes"),
    ({"mode": "mps", "sizes": {"1g.10gb": 1}}, "need sizes"),
    ({"mode": "mig", "sizes": {"1of2": 1}}, "mig needs MIG profiles"),
]


@pytest.mark.parametrize(("layout", "words"), LAYOUTS)
def test_rule_and_model_agree_on_a_layout(layout: dict[str, Any], words: str) -> None:
    entry = schema_of("gpulayouts")["properties"]["spec"]["properties"]["gpus"]["items"]
    wanted = schema_of("gpunodes")["properties"]["spec"]["properties"]["gpus"]["items"]
    for schema in (entry, wanted["properties"]["layout"]):
        broken = broken_rules(schema, layout)
        assert bool(broken) is bool(words)
        assert all(words in message for message in broken)
    if words:
        with pytest.raises(ValueError, match=r"layout|size"):
            LayoutSpec.model_validate(layout)
    else:
        LayoutSpec.model_validate(layout)


@pytest.mark.parametrize("pool", RESERVED_POOLS)
def test_reserved_pools_are_those_of_the_domain(pool: str) -> None:
    with pytest.raises(InputError):
        check_pool(pool)


def test_fields_are_described_for_kubectl_explain() -> None:
    fields = schema_of("sharingprofiles")["properties"]["spec"]["properties"]
    assert all(field.get("description") for field in fields.values())
