"""What becomes of a call, and how HTTP says so: the only place that knows status codes.

================  ====  =========================================================================
outcome           HTTP  when
================  ====  =========================================================================
allowed            200  the object may pass as it is
patched            200  it may pass with our patch
denied             200  ``allowed: false`` with a code and a sentence; also for a review that
                        names its uid and is malformed otherwise, so that the sentence arrives
malformed          400  no HTTP, no JSON, no AdmissionReview of v1, or one without a uid
not_found          404  another path
not_allowed        405  another method than POST
too_slow           408  the body did not arrive in time
too_large          413  the body is larger than a review can be
unsupported        415  another content type than JSON, or a compressed body
failed             500  the decision itself failed; the failurePolicy decides
not_ready          503  nothing is known yet about policies, or about a new namespace
overloaded         503  too much at once
================  ====  =========================================================================

Two kinds of failure are kept apart: the call was bad (an HTTP error, the failurePolicy decides),
or the user's object is (``allowed: false``, the user reads why). A 503 carries Retry-After, and
the API server asks again, on a new connection that may reach another replica. Texts are plain:
the API server quotes a plain text to the user.

Source: kubernetes/client-go, ``rest/request.go`` and ``rest/with_retry.go``; kubernetes/apiserver,
``plugin/webhook/mutating/dispatcher.go``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from webhook.verdict import VerdictKind


class Outcome(StrEnum):
    """What became of a call; also the closed label set of a metric."""

    ALLOWED = "allowed"
    PATCHED = "patched"
    DENIED = "denied"
    MALFORMED = "malformed"
    NOT_FOUND = "not_found"
    NOT_ALLOWED = "not_allowed"
    TOO_SLOW = "too_slow"
    TOO_LARGE = "too_large"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"
    NOT_READY = "not_ready"
    OVERLOADED = "overloaded"

    @property
    def http_status(self) -> int:
        """The status code of the answer."""
        return _STATUS.get(self, 200)

    @property
    def closes(self) -> bool:
        """Whether the connection ends with the answer: the caller misbehaves, or shall go on."""
        return self in _CLOSING

    @property
    def headers(self) -> dict[str, str]:
        """Headers that an answer needs."""
        return _HEADERS.get(self, {})


class Drop(StrEnum):
    """Why a connection ended without an answer; also the closed label set of a metric."""

    HANDSHAKE = "handshake"
    """Its TLS handshake failed or took too long."""
    LATE_HEAD = "late_head"
    """No request's head came in time."""
    CROWDED = "crowded"
    """It gave way to newer ones."""


_STATUS: Final = {
    Outcome.MALFORMED: 400,
    Outcome.NOT_FOUND: 404,
    Outcome.NOT_ALLOWED: 405,
    Outcome.TOO_SLOW: 408,
    Outcome.TOO_LARGE: 413,
    Outcome.UNSUPPORTED: 415,
    Outcome.FAILED: 500,
    Outcome.NOT_READY: 503,
    Outcome.OVERLOADED: 503,
}
_CLOSING: Final = frozenset(_STATUS) - {Outcome.FAILED}
_HEADERS: Final = {
    Outcome.NOT_ALLOWED: {"Allow": "POST"},
    Outcome.NOT_READY: {"Retry-After": "1"},
    Outcome.OVERLOADED: {"Retry-After": "1"},
}
_BY_VERDICT: Final = {
    VerdictKind.ALLOW: Outcome.ALLOWED,
    VerdictKind.PATCH: Outcome.PATCHED,
    VerdictKind.DENY: Outcome.DENIED,
}


class Answer(NamedTuple):
    """An outcome with its body. A tuple, as all values that each review makes."""

    outcome: Outcome
    body: bytes
    content_type: str = "application/json"


def outcome_of(verdict: VerdictKind) -> Outcome:
    """The outcome of a call that got a verdict."""
    return _BY_VERDICT[verdict]


def refusal(outcome: Outcome, sentence: str) -> Answer:
    """The answer to a call that got no verdict."""
    body = f"gpu-sharing webhook: {sentence}\n".encode(errors="replace")
    return Answer(outcome=outcome, body=body, content_type="text/plain")
