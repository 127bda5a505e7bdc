"""The page on policies says all fields of a SharingProfile, and its examples are profiles."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sharing.api.profile import MemoryPolicy, SharingProfileSpec, parse_profile
from sharing.mode import Mode

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text("utf-8")
ROWS = re.findall(r"^\| `([A-Za-z.]+)` \| `(\{.*\})` \| (.+) \|$", PAGE, re.MULTILINE)


def fields() -> set[str]:
    names = {str(field.alias or name) for name, field in SharingProfileSpec.model_fields.items()}
    inner = {f"memory.{field.alias or name}" for name, field in MemoryPolicy.model_fields.items()}
    return names - {"memory"} | inner


def test_the_page_has_each_field_of_the_model_once() -> None:
    assert sorted(name for name, _, _ in ROWS) == sorted(fields())


@pytest.mark.parametrize(("name", "example", "text"), ROWS, ids=[row[0] for row in ROWS])
def test_an_example_is_a_profile_that_sets_its_field(name: str, example: str, text: str) -> None:
    spec: Any = yaml.safe_load(example)
    parse_profile({"metadata": {"name": "p"}, "spec": spec})
    value = spec
    for part in name.split("."):
        value = value[part]
    assert text


def test_the_page_names_each_built_in_profile_and_each_choice() -> None:
    schema = SharingProfileSpec.model_json_schema(by_alias=True)
    choices = [
        value
        for definition in schema["$defs"].values()
        for value in definition.get("enum", ())
        if definition["title"] not in ("System", "Toleration")
    ]
    missing = [value for value in [*choices, *Mode, "admit", "evict", "allow"] if value not in PAGE]
    assert missing == []
