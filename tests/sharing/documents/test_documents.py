"""Documents: read strictly, as kubectl reads them, and written so that it reads them back."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.documents import MOST_BYTES, read_documents, write_documents
from sharing.errors import InputError


def value_of(text: str) -> Any:
    (document,) = read_documents(text.encode(), "f.yaml")
    return document.value


def refusal(data: str | bytes) -> str:
    with pytest.raises(InputError) as caught:
        read_documents(data if isinstance(data, bytes) else data.encode(), "f.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("yes", True),
        ("off", False),
        ("~", None),
        ("1e3", 1000.0),
        ("010", 8),
        ("0x1F", 31),
        ("-12", -12),
        ("1_000", 1000),
        (".5", 0.5),
        ("2024-01-01", "2024-01-01"),
        ("12:30:45", "12:30:45"),
        ("250m", "250m"),
        ("1of4", "1of4"),
        ("1g.10gb", "1g.10gb"),
        ("0.25.1", "0.25.1"),
        ("18446744073709551616", 18446744073709551616.0),
        ("'yes'", "yes"),
        ("!!str 5", "5"),
        ("!!int 5", 5),
    ],
)
def test_unquoted_words_mean_what_they_mean_to_kubectl(word: str, value: object) -> None:
    found = value_of(f"k: {word}")["k"]

    assert found == value
    assert type(found) is type(value)


def test_keys_become_texts_as_in_json() -> None:
    assert value_of("1: a\nyes: b\n1.5: c") == {"1": "a", "true": "b", "1.5": "c"}


def test_documents_know_their_place_and_empty_ones_are_left_out() -> None:
    found = read_documents(b"# helm\n---\n---\na: 1\n---\n\nb: 2\n", "f.yaml")

    assert [(document.where, document.value) for document in found] == [
        ("f.yaml, document 2 (line 4)", {"a": 1}),
        ("f.yaml, document 3 (line 7)", {"b": 2}),
    ]


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert read_documents(b"\xef\xbb\xbfa: 1", "f.yaml")[0].value == {"a": 1}


def test_merge_keys_fill_what_the_mapping_leaves_open() -> None:
    text = "base: &b {x: 1, w: 1}\nuse: {<<: *b, w: 2}\nlist: {<<: [*b, {z: 3}]}"

    assert value_of(text) == {
        "base": {"x": 1, "w": 1},
        "use": {"x": 1, "w": 2},
        "list": {"x": 1, "w": 1, "z": 3},
    }


def test_each_use_of_an_alias_is_its_own_value() -> None:
    found = value_of("a: &a {m: [1]}\nb: *a")

    found["a"]["m"].append(2)

    assert found["b"] == {"m": [1]}


def test_anchors_end_with_their_document() -> None:
    assert "line 3: *x stands before &x is complete" in refusal("a: &x 1\n---\nb: *x")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: key 'a' stands twice in one mapping"),
        ("yes: 1\non: 2", "line 2: key 'true' stands twice"),
        ('{"a": {"b": 1, "b": 2}}', "key 'b' stands twice in one mapping"),
        ("&a [*a]", "*a stands before &a is complete"),
        ("k: .inf", ".inf is no number that JSON has"),
        ('{"k": NaN}', "no number of 64 bits"),
        ('{"k": 1e999}', "no number of 64 bits"),
        ('{"k": 99999999999999999999}', "no number of 64 bits"),
        ('{"k": ' + "9" * 5000 + "}", "no number of 64 bits"),
        ('{"k": "\\ud800"}', "half of a surrogate pair"),
        ("k: !!python/object:os.system x", "tag 'tag:yaml.org,2002:python/object:os.system'"),
        ("k: !!binary aGk=", "is not accepted"),
        ("k: !Ref x", "is not accepted"),
        ("[a]: 1", "a key is a list or mapping"),
        ("? {a: 1}\n: 1", "a key is a list or mapping"),
        ("~: 1", "a key is empty"),
        ("a: &a x\n*a : 1", "a key is an alias"),
        ("<<: 3", "<< merges something that is no mapping"),
        ("a: [1, 2", "it is no YAML"),
        ("a: b: c", "line 1: it is no YAML: mapping values are not allowed"),
        ("a:\n\t- b", "line 2: it is no YAML"),
        ("a: x\x00y", "it is no YAML"),
        ("[" * 300 + "]" * 300, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 300 + "1" + "}" * 300, "nested too deeply"),
    ],
)
def test_what_is_not_sound_is_refused_with_its_place(text: str, says: str) -> None:
    message = refusal(text)

    assert message.startswith("f.yaml")
    assert says in message
    assert "\n" not in message


def test_bytes_that_are_no_utf8_are_refused_by_position() -> None:
    assert "byte 3 is no UTF-8" in refusal(b"a: \xff\xfe")


def test_a_bomb_of_aliases_is_refused_before_it_goes_off() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for inner, outer in zip("abcdefghij", "bcdefghijk", strict=True):
        lines.append(f"{outer}: &{outer} [{', '.join(['*' + inner] * 10)}]")
    start = time.process_time()

    message = refusal("\n".join(lines))

    assert "aliases stand for too many values" in message
    assert time.process_time() - start < 2


def test_depth_is_counted_through_aliases() -> None:
    lines = ["a0: &a0 " + "[" * 90 + "]" * 90]
    lines += [f"a{n}: &a{n} " + "[" * 90 + f"*a{n - 1}" + "]" * 90 for n in (1, 2)]

    assert "nested too deeply" in refusal("\n".join(lines))


def test_a_huge_file_is_refused_unread() -> None:
    assert "expected at most 32 MiB" in refusal(b"#" * (MOST_BYTES + 1))


texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)
words = st.sampled_from(
    ["yes", "n", "1e3", "0x1", "010", "~", "", "null", "1:30", "- a", "#", "<<"]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | words
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | words, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(texts | words, trees, min_size=1, max_size=4))
def test_what_is_written_is_read_back(value: dict[str, Any]) -> None:
    written = write_documents([value])

    (document,) = read_documents(written.encode(), "f.yaml")

    assert document.value == value


@given(st.dictionaries(texts, trees, max_size=4))
def test_json_is_read_as_json(value: dict[str, Any]) -> None:
    (document,) = read_documents(json.dumps(value).encode(), "f.json")

    assert document.value == value


@given(st.binary(max_size=60) | st.text("-:{}[]&*a!<>|'\"\n ,?#%@0", max_size=60).map(str.encode))
def test_any_bytes_are_documents_or_one_sentence(data: bytes) -> None:
    message = ""
    try:
        read_documents(data, "f.yaml")
    except InputError as error:
        message = str(error)

    assert "\n" not in message
