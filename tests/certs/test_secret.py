"""What a Secret means, whatever is in it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from certs.bundle import Bundle
from certs.secret import ASK_ANNOTATION, Stored, read_secret, write_secret
from tests.certs.makers import make_leaf

AUTHORITY, LEAF = make_leaf()
OTHER_AUTHORITY, OTHER = make_leaf(seed=5)
FULL = Stored(
    current=LEAF,
    next=OTHER,
    trusted=Bundle.of([AUTHORITY.certificate, OTHER_AUTHORITY.certificate]),
    promoted_at=datetime(2026, 5, 4, 12, 0, 1, 5, tzinfo=UTC),
    retired=("a" * 64, "b" * 64),
    asked="two",
    answered="one",
)
EMPTY: dict[str, Any] = {"metadata": {"name": "certs"}}


@pytest.mark.parametrize("stored", [FULL, Stored(), Stored(current=LEAF)])
def test_a_state_comes_back_from_its_secret(stored: Stored) -> None:
    assert read_secret(write_secret(stored, EMPTY)) == stored


def test_all_keys_are_always_written_so_that_any_type_of_secret_takes_them() -> None:
    written = write_secret(Stored(), EMPTY)

    assert set(written["data"]) == {
        "schema",
        "tls.crt",
        "tls.key",
        "next.crt",
        "next.key",
        "ca.crt",
        "promoted-at",
        "retired",
    }


def test_everything_else_in_the_secret_stays() -> None:
    secret = {
        "metadata": {
            "name": "certs",
            "resourceVersion": "7",
            "labels": {"team": "gpu"},
            "annotations": {"note": "keep", ASK_ANNOTATION: "now"},
        },
        "type": "Opaque",
        "data": {"old": "b2xk"},
        "stringData": {"x": "y"},
    }

    written = write_secret(read_secret(secret), secret)

    assert written["metadata"] == secret["metadata"]
    assert written["type"] == "Opaque"
    assert "stringData" not in written
    assert "old" not in written["data"]


def test_retired_fingerprints_do_not_grow_without_end() -> None:
    many = tuple(f"{number:064x}" for number in range(50))

    assert read_secret(write_secret(Stored(retired=many), EMPTY)).retired == many[-16:]


VALUES = st.one_of(
    st.none(),
    st.integers(),
    st.text(max_size=20),
    st.binary(max_size=40).map(lambda value: base64.b64encode(value).decode()),
    st.lists(st.integers(), max_size=2),
)
KEYS = st.sampled_from(
    ["schema", "tls.crt", "tls.key", "next.crt", "next.key", "ca.crt", "promoted-at", "retired"]
)


@given(
    data=st.one_of(VALUES, st.dictionaries(st.one_of(KEYS, st.text(max_size=5)), VALUES)),
    metadata=st.one_of(VALUES, st.dictionaries(st.just("annotations"), VALUES)),
)
def test_reading_never_fails(data: object, metadata: object) -> None:
    stored = read_secret({"data": data, "metadata": metadata})

    assert stored.current is None
    assert stored.next is None
    assert len(stored.trusted) == 0


@given(key=KEYS, value=VALUES)
def test_one_broken_key_leaves_the_others_readable(key: str, value: object) -> None:
    written = write_secret(FULL, EMPTY)
    broken = {**written, "data": {**written["data"], key: value}}

    stored = read_secret(broken)

    assert key.startswith("tls") or stored.current == LEAF
    assert key.startswith("next") or stored.next == OTHER
    assert key == "ca.crt" or stored.trusted == FULL.trusted


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("tls.key", OTHER.key_pem, "tls.crt: does not belong to the key in tls.key"),
        ("ca.crt", LEAF.certificate_pem, "ca.crt: holds 'CN=gpu-sharing serving"),
        ("promoted-at", b"yesterday", "promoted-at is no time: 'yesterday'"),
        ("schema", b"9", "schema is '9' where '1' is known"),
    ],
)
def test_what_cannot_be_read_is_told(key: str, value: bytes, says: str) -> None:
    written = write_secret(FULL, EMPTY)
    encoded = base64.b64encode(value).decode()

    stored = read_secret({**written, "data": {**written["data"], key: encoded}})

    assert any(oddity.startswith(says) for oddity in stored.oddities)
