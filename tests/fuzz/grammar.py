"""Reviews for fuzzers: well-formed ones of all kinds, and bytes that are nearly reviews."""

from __future__ import annotations

from typing import Any, Final

import orjson
from hypothesis import strategies as st

from tests.fuzz.world import NAMESPACES
from tests.support.pods import JSON, PODS

_KINDS: Final = {
    "Deployment": ("apps", ("spec", "template")),
    "Job": ("batch", ("spec", "template")),
    "CronJob": ("batch", ("spec", "jobTemplate", "spec", "template")),
    "RayCluster": ("ray.io", ("spec", "headGroupSpec", "template")),
}
_OPERATIONS: Final = st.sampled_from(["CREATE", "CREATE", "CREATE", "UPDATE", "DELETE", "CONNECT"])
_SUBRESOURCES: Final = st.sampled_from(["", "", "", "ephemeralcontainers", "resize", "status"])


def _workload(kind: str, pod: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    group, path = _KINDS[kind]
    body: Any = {key: pod[key] for key in ("metadata", "spec") if key in pod}
    for key in reversed(path):
        body = {key: body}
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, **body}


_METADATA: Final[st.SearchStrategy[dict[str, Any]]] = st.fixed_dictionaries(
    {"name": st.just("web")},
    optional={
        "annotations": st.none()
        | st.dictionaries(
            st.sampled_from(["status.gpu.sharing/fractions", "mine"]), st.text(max_size=9)
        ),
        "finalizers": st.just([]),
    },
)
_WORKLOADS: Final = st.builds(_workload, st.sampled_from(sorted(_KINDS)), PODS, _METADATA)


def _review(
    made: Any, namespace: str, operation: str, extra: dict[str, Any], old: Any
) -> dict[str, Any]:
    kind = made.get("kind", "Pod") if isinstance(made, dict) else "Pod"
    request = {
        "uid": "u",
        "operation": operation,
        "kind": {"group": "", "version": "v1", "kind": kind},
        "resource": {"group": "", "version": "v1", "resource": kind.lower() + "s"},
        "namespace": namespace,
        "userInfo": {"username": "x", "groups": ["system:authenticated"]},
        "object": made,
        "oldObject": old,
        **extra,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


REVIEWS: Final = st.builds(
    _review,
    PODS | PODS | _WORKLOADS | st.none(),
    st.sampled_from(NAMESPACES),
    _OPERATIONS,
    st.fixed_dictionaries({}, optional={"subResource": _SUBRESOURCES, "dryRun": st.booleans()}),
    st.none() | PODS,
)
"""What an API server could send."""


def _spoil(body: bytes, cuts: list[tuple[int, bytes]]) -> bytes:
    spoilt = bytearray(body)
    for place, piece in cuts:
        at = place % (len(spoilt) + 1)
        spoilt[at : at + len(piece)] = piece
    return bytes(spoilt)


_PIECES: Final = st.sampled_from(
    [b"{", b"}", b'"', b"null", b"\x00", b"\xff", b"[[[[", b"1e999", b"\\ud800", b"-", b",", b""]
) | st.binary(max_size=4)
BODIES: Final = st.one_of(
    REVIEWS.map(orjson.dumps),
    st.builds(
        _spoil,
        REVIEWS.map(orjson.dumps),
        st.lists(st.tuples(st.integers(0, 10**6), _PIECES), min_size=1, max_size=3),
    ),
    st.builds(lambda review, part, value: orjson.dumps(
        {**review, "request": {**review["request"], part: value}}
    ), REVIEWS, st.sampled_from(["object", "kind", "operation", "userInfo", "namespace"]), JSON),
    st.binary(max_size=64),
)  # fmt: skip
"""Anything that a caller could send."""
