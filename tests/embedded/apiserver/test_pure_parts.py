"""Quantities, selectors, paths, tables, field shapes: functions over data."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded.apiserver import cel
from embedded.apiserver.admission.runtimeclass import merged
from embedded.apiserver.kinds import KindTable
from embedded.apiserver.negotiation import Shape, choose
from embedded.apiserver.paths import ResourcePath, parse
from embedded.apiserver.quantities import amount, canonical
from embedded.apiserver.selectors import labels_from_object, parse_labels
from embedded.apiserver.status import StatusError
from embedded.apiserver.tablecells import duration, pod_status
from embedded.apiserver.tables import json_path, table
from sharing.errors import QuantityError

_QUANTITIES = st.from_regex(
    r"\A-?[0-9]{1,6}(\.[0-9]{1,4})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|e[0-9]|E-?[0-3]|)\Z"
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1", "1"),
        ("1.5", "1500m"),
        ("1500m", "1500m"),
        ("8000", "8k"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("0", "0"),
        ("0Gi", "0"),
        ("1e3", "1e3"),
        ("1500", "1500"),
        ("100000k", "100M"),
        ("-1.5", "-1500m"),
        ("0.1n", "1n"),
        ("1Ei", "1Ei"),
        ("12E", "12E"),
        ("1E", "1E"),
    ],
)
def test_quantities_are_spelled_as_upstream_spells_them(text: str, shown: str) -> None:
    assert canonical(text) == shown


@given(_QUANTITIES)
def test_canonical_forms_settle(text: str) -> None:
    """A binary amount that is no multiple of 1024 loses its suffix, and so is decimal next time."""
    settled = canonical(canonical(text))
    assert canonical(settled) == settled
    assert amount(settled) == amount(canonical(text))


@given(_QUANTITIES.filter(lambda text: "n" not in text and "u" not in text))
def test_spelling_keeps_the_amount_down_to_a_nano(text: str) -> None:
    assert abs(amount(canonical(text)) - amount(text)) < (1 if text.endswith("i") else amount("1n"))


@pytest.mark.parametrize(
    "text", ["", "x", "1 Gi", "1gi", "Gi", "1.2.3", "1e", "++1", "1" * 65, "0x1", "1_0"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        canonical(text)


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a in (b, c)", {"a": "c"}, True),
        ("a notin (b)", {"a": "b"}, False),
        ("a notin (b)", {}, True),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a=b,c!=d", {"a": "b", "c": "d"}, False),
        ("n>3", {"n": "4"}, True),
        ("n<3", {"n": "x"}, False),
        ("x/y.z in (1),!q", {"x/y.z": "1"}, True),
        ("a=", {"a": ""}, True),
    ],
)
def test_label_selectors_follow_the_grammar(
    selector: str, labels: dict[str, str], matches: bool
) -> None:
    assert parse_labels(selector).matches(labels) is matches


def test_a_missing_key_satisfies_the_negative_operators() -> None:
    selector = {
        "matchExpressions": [
            {"key": "a", "operator": "NotIn", "values": ["x"]},
            {"key": "b", "operator": "DoesNotExist"},
        ]
    }
    assert labels_from_object(selector).matches({})
    assert labels_from_object(None).matches({"any": "thing"})
    with pytest.raises(StatusError):
        labels_from_object({"matchExpressions": [{"key": "a", "operator": "Like"}]})


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/api/v1/pods", ("", "v1", "pods", "", "", "")),
        ("/api/v1/namespaces/a/pods/b/status", ("", "v1", "pods", "a", "b", "status")),
        ("/api/v1/namespaces/a", ("", "v1", "namespaces", "", "a", "")),
        ("/api/v1/namespaces/a/status", ("", "v1", "namespaces", "", "a", "status")),
        ("/api/v1/namespaces/a/finalize", ("", "v1", "namespaces", "", "a", "finalize")),
        ("/apis/x.io/v1/namespaces/a/things/b", ("x.io", "v1", "things", "a", "b", "")),
        ("/apis/x.io/v1/things", ("x.io", "v1", "things", "", "", "")),
    ],
)
def test_paths_are_read_like_request_info(path: str, parts: tuple[str, ...]) -> None:
    found = parse(path)
    assert isinstance(found, ResourcePath)
    assert (
        found.group,
        found.version,
        found.resource,
        found.namespace,
        found.name,
        found.subresource,
    ) == parts


@pytest.mark.parametrize(
    ("accept", "shape"),
    [
        ("", Shape.OBJECT),
        ("*/*", Shape.OBJECT),
        ("application/json", Shape.OBJECT),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Shape.TABLE),
        ("application/json;as=Unheard,application/json", Shape.OBJECT),
        (
            "application/cbor,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            Shape.METADATA,
        ),
    ],
)
def test_the_first_acceptable_form_is_chosen(accept: str, shape: Shape) -> None:
    assert choose(accept).shape is shape


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (900, "15m"),
        (3600 * 4, "4h"),
        (3600 * 4 + 120, "4h2m"),
        (3600 * 30, "30h"),
        (86400 * 3 + 3600, "3d1h"),
        (86400 * 30, "30d"),
        (86400 * 800, "2y"),
        (-5, "0s"),
    ],
)
def test_ages_are_human_durations(seconds: int, shown: str) -> None:
    assert duration(timedelta(seconds=seconds)) == shown


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"phase": "Running"}, "Running"),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, "UnexpectedAdmissionError"),
        (
            {
                "phase": "Pending",
                "containerStatuses": [{"state": {"waiting": {"reason": "CreateContainerError"}}}],
            },
            "CreateContainerError",
        ),
        ({"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}]}, "Init:0/0"),
    ],
)
def test_the_status_column_shows_the_most_telling_reason(
    status: dict[str, Any], shown: str
) -> None:
    assert pod_status({"status": status}) == shown


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".a.b", 1),
        (".a.missing", None),
        (".list[0].n", "x"),
        (".list[*].n", ["x", "y"]),
        ('.list[?(@.n=="y")].v', 2),
        (".a['k.x/y']", 3),
        (".a.k\\.x/y", 3),
        (".list[9]", None),
    ],
)
def test_simple_json_paths_are_followed(path: str, value: Any) -> None:
    obj = {"a": {"b": 1, "k.x/y": 3}, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]}
    assert json_path(obj, path) == value


def test_every_kind_prints_an_empty_object() -> None:
    """A table never fails on what an object lacks."""
    for kind in KindTable():
        rows = table(kind, [{"metadata": {"name": "x"}}])["rows"]
        assert "x" in str(rows[0]["cells"])


_TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {"operator": st.sampled_from(["Exists", "Equal"])},
        optional={
            "key": st.sampled_from("ab"),
            "value": st.sampled_from("xy"),
            "effect": st.sampled_from(["NoExecute", "NoSchedule"]),
            "tolerationSeconds": st.integers(0, 2),
        },
    ),
    max_size=4,
)


@given(own=_TOLERATIONS, wanted=_TOLERATIONS)
def test_tolerations_merged_again_add_nothing(own: list[Any], wanted: list[Any]) -> None:
    """A reinvocation runs the plug-ins once more, and each pod would grow by it otherwise."""
    once = merged(own, wanted)

    again = merged(once, wanted)

    assert len(again) == len(once)
    assert [each for each in again if each not in own + wanted] == []


class TestCel:
    def test_optional_access_on_null_is_absent(self) -> None:
        assert (
            cel.evaluate("object.?metadata.?labels.orValue({}).size() == 0", {"object": None})
            is True
        )
        assert cel.evaluate("object == null", {"object": None}) is True

    def test_an_error_is_told(self) -> None:
        with pytest.raises(cel.CelError, match="Key not found"):
            cel.evaluate("object.a.b", {"object": {"a": {}}})
        assert "undeclared reference" in cel.check("nosuch == 1")

    @pytest.mark.parametrize(
        "expression",
        [
            "quantity('1Gi').isGreaterThan(quantity('1G'))",
            "isQuantity('10Gi') && !isQuantity('10 GB')",
            "quantity('1000m').compareTo(quantity('1')) == 0",
            "[1, 2, 3].sum() == 6",
            "[1, 2].max() == 2",
            "'abc1'.find('[0-9]') == '1'",
            "[1, 2].isSorted()",
            "quantity('3').asInteger() == 3",
        ],
    )
    def test_the_libraries_of_kubernetes_are_there(self, expression: str) -> None:
        assert cel.evaluate(expression, {}) is True
