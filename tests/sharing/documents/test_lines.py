"""Each object knows its file and the line on which it starts, also inside Lists."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from sharing.documents import objects_of, read_documents, write_documents


def lines_of(text: str) -> list[tuple[str, int]]:
    found = tuple(objects_of(read_documents(text.encode(), "f.yaml")))
    assert all(one.source == "f.yaml" for one in found)
    return [(one.name, one.line) for one in found]


def test_documents_of_a_stream_start_where_their_first_key_stands() -> None:
    text = "# a\n---\napiVersion: v1\nkind: A\nmetadata: {name: a}\n---\n\n---\n# b\nkind: B\n"
    text += "apiVersion: v1\nmetadata: {name: b}\n"

    assert lines_of(text) == [("a", 3), ("b", 10)]


def test_members_of_a_list_in_yaml_have_lines_of_their_own() -> None:
    text = """\
kind: List
apiVersion: v1
x: &x
  apiVersion: v1
  kind: A
  metadata: {name: a}
items:
- *x
- apiVersion: v1
  kind: B
  metadata: {name: b}
-
  apiVersion: v1
  kind: List
  items:
  - {apiVersion: v1, kind: C, metadata: {name: c}}
"""
    assert lines_of(text) == [("a", 8), ("b", 9), ("c", 13)]


def test_members_of_a_list_in_json_have_lines_of_their_own() -> None:
    text = """\
{"kind": "List", "a": ["items", {}], "apiVersion": "v1", "other": [{"items": [{}]}],
 "items": [{"apiVersion": "v1", "kind": "A", "metadata": {"name": "a\\"[{"}},

 {"metadata": {"name": "b"},
  "items": [{}, {}],
  "apiVersion": "v1", "kind": "B"}
], "z": [{}]}
"""
    assert lines_of(text) == [('a"[{', 2), ("b", 4)]


@given(st.lists(st.text(max_size=8), max_size=6), st.sampled_from([1, 2]))
def test_any_list_gives_each_member_the_line_on_which_it_starts(
    names: list[str], indent: int
) -> None:
    items = [
        {"apiVersion": f"v{number}", "kind": "A", "metadata": {"name": name}}
        for number, name in enumerate(names)
    ]
    whole = {"apiVersion": "v1", "kind": "List", "items": items}
    as_json, as_yaml = json.dumps(whole, indent=indent), write_documents([whole])

    # In JSON the brace stands on the line before the first key.
    for text, before in ((as_json, 1), (as_yaml, 0)):
        rows = text.split("\n")
        stated = [n for n, row in enumerate(rows, 1) if "apiVersion" in row][1:]
        assert [line for _, line in lines_of(text)] == [n - before for n in stated]
    assert {line for _, line in lines_of(json.dumps(whole))} <= {1}
