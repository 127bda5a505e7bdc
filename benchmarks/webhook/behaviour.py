"""Whether servers do the same: nothing is timed that does not answer alike."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jsonpatch

from benchmarks.webhook.reviews import UID, ReviewInput
from sharing.errors import GpuSharingError

_OK: Final = 200
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What a server makes of one review, as far as servers have to agree on it."""

    verdict: str
    """``allowed``, ``denied``, or ``refused`` for a body that is no review."""
    code: int = 0
    """Of a denial."""
    pod: dict[str, Any] | None = None
    """What the pod becomes by the patch."""
    warnings: tuple[str, ...] = ()


class DisagreementError(GpuSharingError):
    """Servers answer differently, so their times mean nothing."""


def ask(address: str, context: ssl.SSLContext, body: bytes) -> tuple[int, bytes]:
    """A server's HTTP status and answer to a body."""
    connection = http.client.HTTPSConnection(address, context=context, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", "/mutate", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def behaviour_of(asked: ReviewInput, status: int, answer: bytes) -> Behaviour:
    """What an answer says.

    Args:
        asked: The review.
        status: The answer's HTTP status.
        answer: Its body.
    """
    pod = asked.pod
    if status != _OK or pod is None:
        refused = status != _OK or json.loads(answer)["response"]["allowed"] is False
        return Behaviour(verdict="refused" if refused else "allowed")
    response = json.loads(answer)["response"]
    if response["uid"] != UID:
        raise DisagreementError(asked.name, f"the answer is for {response['uid']}")
    if not response["allowed"]:
        return Behaviour(verdict="denied", code=response["status"]["code"])
    patch = json.loads(base64.b64decode(response.get("patch") or b"W10="))
    return Behaviour(
        verdict="allowed",
        pod=jsonpatch.apply_patch(pod, patch),
        warnings=tuple(response.get("warnings") or ()),
    )


def check_same(asked: ReviewInput, behaviours: Mapping[str, Behaviour]) -> None:
    """Refuse servers that make different things of one review.

    Args:
        asked: The review.
        behaviours: By server; the first one is what the others are compared with.

    Raises:
        DisagreementError: Two of them differ; the first difference is named.
    """
    (first, wanted), *others = behaviours.items()
    for name, found in others:
        if found != wanted:
            raise DisagreementError(
                f"review {asked.name}",
                f"{name} and {first} do not do the same: {_difference(wanted, found)}",
                fix="nothing was timed; make the programs in benchmarks/webhook/go agree again",
            )


def _difference(wanted: Behaviour, found: Behaviour) -> str:
    for field in ("verdict", "code", "warnings"):
        if getattr(wanted, field) != getattr(found, field):
            return f"{field} {getattr(found, field)!r} in place of {getattr(wanted, field)!r}"
    patch = jsonpatch.make_patch(wanted.pod, found.pod).patch
    return f"the pods differ by {json.dumps(patch)[:400]}"
