"""Every row of the outcome table, over HTTPS."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import trustme

from tests.support.admission import MPS, Served, pod, review, serving
from webhook.limits import MOST_BODY_BYTES
from webhook.outcome import Outcome
from webhook.policies import Governing, Policies
from webhook.snapshot import Snapshot


async def test_a_pod_of_a_namespace_without_policy_is_allowed_as_it_is(served: Served) -> None:
    answer = await served.ask(review(pod(), namespace="elsewhere", uid="u-7"))

    assert answer == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u-7", "allowed": True},
    }
    assert served.count("allowed") == 1


async def test_a_pod_that_asks_for_a_gpu_is_patched(served: Served) -> None:
    answer = await served.ask(review(pod(), uid="u-8"))

    response = answer["response"]
    assert (response["uid"], response["allowed"]) == ("u-8", True)
    assert response["patchType"] == "JSONPatch"
    operations = json.loads(base64.b64decode(response["patch"]))
    assert "gpu.sharing/mps-1of4" in json.dumps(operations)
    assert served.count("patched") == 1


async def test_a_pod_that_cannot_be_served_is_denied_with_a_sentence(served: Served) -> None:
    answer = await served.ask(review(pod({"gpu.sharing/fraction": "much"}), uid="u-9"))

    response = answer["response"]
    assert (response["uid"], response["allowed"]) == ("u-9", False)
    assert response["status"]["code"] == 422
    assert "much" in response["status"]["message"]
    assert "patch" not in response
    assert served.count("denied") == 1


MALFORMED: list[tuple[str, bytes]] = [
    ("nothing", b""),
    ("no JSON", b"{"),
    ("a second value", b"{} {}"),
    ("not a number", b'{"kind": NaN}'),
    ("infinity", b'{"kind": 1e400}'),
    ("half a surrogate pair", b'{"kind": "\\ud800"}'),
    ("no UTF-8", b'{"kind": "\xff"}'),
    ("a byte order mark", b"\xef\xbb\xbf{}"),
    ("UTF-16", '{"kind": "x"}'.encode("utf-16")),
    ("1,100 levels", b"[" * 1100 + b"]" * 1100),
    ("a million brackets", b"[" * 1_000_000),
    ("a list", b"[]"),
    ("a text", b'"AdmissionReview"'),
    ("null", b"null"),
    ("no review", b"{}"),
    ("another kind", b'{"apiVersion":"admission.k8s.io/v1","kind":"Pod"}'),
    ("no request", b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}'),
    ("a request that is none", json.dumps(review(None) | {"request": [1]}).encode()),
    ("no uid", json.dumps(review(pod(), uid="")).encode()),
    ("a uid that is a number", json.dumps(review(pod(), uid=7)).encode()),  # type: ignore[arg-type]
    (
        "another version",
        json.dumps(review(pod()) | {"apiVersion": "admission.k8s.io/v1beta1"}).encode(),
    ),
]


@pytest.mark.parametrize(
    "body", [body for _, body in MALFORMED], ids=[name for name, _ in MALFORMED]
)
async def test_what_is_no_review_is_a_bad_request_in_one_sentence(
    served: Served, body: bytes
) -> None:
    status, headers, text = await served.post(body)

    assert status == 400
    assert headers["Content-Type"].startswith("text/plain")
    assert text.startswith("gpu-sharing webhook: ")
    assert text.count("\n") == 1
    assert "Traceback" not in text
    assert served.count("malformed") == 1


@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "MERGE"},
        {"operation": 3},
        {"kind": "Pod"},
        {"object": "pod"},
        {"object": [1]},
        {"namespace": 7},
        {"userInfo": []},
    ],
)
async def test_a_malformed_review_with_a_uid_is_denied_so_that_its_sentence_arrives(
    served: Served, request_: dict[str, Any]
) -> None:
    answer = await served.ask(review(pod(), uid="u-3", **request_))

    response = answer["response"]
    assert (response["uid"], response["allowed"]) == ("u-3", False)
    assert response["status"]["code"] == 400
    assert response["status"]["message"]


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "application/json+x",
        "",
    ],
)
async def test_another_content_type_is_refused(served: Served, content_type: str) -> None:
    status, _, text = await served.post(b"{}", Content_Type=content_type)

    assert (status, served.count("unsupported")) == (415, 1)
    assert "application/json" in text


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8"])
async def test_json_may_carry_parameters(served: Served, content_type: str) -> None:
    body = json.dumps(review(pod())).encode()

    status, _, _ = await served.post(body, Content_Type=content_type)

    assert status == 200


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity, gzip"])
async def test_a_compressed_body_is_refused_unread(served: Served, encoding: str) -> None:
    status, headers, _ = await served.post(b"\x1f\x8b" + b"\0" * 500, Content_Encoding=encoding)

    assert status == 415
    assert headers["Connection"] == "close"


async def test_a_body_of_the_limit_is_read_and_one_byte_more_is_not(served: Served) -> None:
    filled = json.dumps(review(pod(), options={"filler": ""})).encode()
    room = MOST_BODY_BYTES - len(filled)
    exact = filled.replace(b'"filler": ""', b'"filler": "' + b"x" * room + b'"')
    assert len(exact) == MOST_BODY_BYTES

    assert (await served.post(exact))[0] == 200
    assert (await served.post(exact + b" "))[0] == 413
    assert served.count("too_large") == 1


async def test_another_method_is_refused_with_the_right_one_named(served: Served) -> None:
    async with served.session.get(served.url) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")


async def test_another_path_is_not_found(served: Served) -> None:
    async with served.session.post(served.url + "/x", json=review(pod())) as response:
        assert response.status == 404


async def test_before_the_first_sync_the_caller_is_asked_to_come_again(
    authority: trustme.CA,
) -> None:
    async with serving(authority, snapshot=None) as served:
        status, headers, _ = await served.post(json.dumps(review(pod())).encode())
        assert (status, headers["Retry-After"], headers["Connection"]) == (503, "1", "close")
        assert served.count("not_ready") == 1

        served.current[0] = MPS

        assert (await served.ask(review(pod())))["response"]["allowed"] is True


class Faulty(Policies):
    """Policies with a fault, as a mistake in our code would be."""

    def profile_for(self, namespace: str) -> Governing:
        raise ZeroDivisionError(namespace)


async def test_a_fault_of_ours_is_a_failed_call_and_neither_admits_nor_tells(
    authority: trustme.CA,
) -> None:
    async with serving(authority, snapshot=Snapshot(policies=Faulty())) as served:
        status, headers, text = await served.post(json.dumps(review(pod(), uid="u-5")).encode())

        assert status == 500
        assert headers["Content-Type"].startswith("text/plain")
        assert "u-5" in text
        assert "ZeroDivisionError" not in text
        assert "Retry-After" not in headers
        assert served.count("failed") == 1


def test_the_table_in_the_docstring_is_the_table_in_the_code() -> None:
    import webhook.outcome

    rows = {
        words[0]: int(words[1])
        for line in (webhook.outcome.__doc__ or "").splitlines()
        if len(words := line.split()) > 2 and words[1].isdecimal()
    }

    assert rows == {outcome.value: outcome.http_status for outcome in Outcome}
