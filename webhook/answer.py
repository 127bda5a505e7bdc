"""The way of one call: bytes in, an answer out. Awaits nothing; never raises.

Everything that the server does around it is moving bytes and counting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import orjson

from sharing.errors import shown
from sharing.inventory import Inventory
from webhook.admission import admit
from webhook.alike import Ruling, rule, ruling_of
from webhook.limits import decode
from webhook.outcome import Answer, Outcome, outcome_of, refusal
from webhook.policies import Policies
from webhook.reading import Reading, reading_of
from webhook.review import MalformedReviewError, Review, parse_review
from webhook.snapshot import Snapshot
from webhook.twins import Twins
from webhook.verdict import Verdict, render

_MALFORMED_CODE = 400
_TWINS: Final = Twins()

Rule = Callable[[Reading, Policies, Inventory | None], Ruling]


class Asked(NamedTuple):
    """A review that could be read."""

    uid: str
    reading: Reading


class Answered(NamedTuple):
    """An answer, and what the log and the metrics want to know about it.

    A tuple, as all values that each review makes.
    """

    answer: Answer
    asked: Asked | None = None
    verdict: Verdict | None = None
    fault: Exception | None = None
    """What broke inside the decision; never shown to the caller."""


def answer_body(body: bytes, snapshot: Snapshot) -> Answered:
    """The answer to the body of a call."""
    twin = _TWINS.recall(body)
    if twin is not None:
        return _answered(Asked(*twin), snapshot, rule)
    try:
        decoded = decode(body)
    except ValueError as error:
        sentence = f"the body is no JSON: {error}"
        return Answered(answer=refusal(Outcome.MALFORMED, sentence))
    try:
        review = parse_review(decoded)
    except MalformedReviewError as error:
        return _malformed(error, decoded)
    return _answered(Asked(review.uid, reading_of(review)), snapshot, rule)


def answer_review(review: Review, snapshot: Snapshot) -> Answered:
    """The answer to a review that could be read, with nothing remembered."""
    return _answered(Asked(review.uid, reading_of(review)), snapshot, _rule_anew)


def _rule_anew(reading: Reading, policies: Policies, inventory: Inventory | None) -> Ruling:
    return ruling_of(admit(reading.review, policies, inventory))


def _answered(asked: Asked, snapshot: Snapshot, decide: Rule) -> Answered:
    namespace = asked.reading.review.namespace
    if not snapshot.policies.knows(namespace):
        # Its labels are on their way: without them its pods would pass as if no policy governed it.
        answer = refusal(Outcome.NOT_READY, f"namespace {shown(namespace)} has not been seen yet")
        return Answered(answer=answer, asked=asked)
    try:
        ruling = decide(asked.reading, snapshot.policies, snapshot.inventory)
        rendered = ruling.answer(asked.uid)
    except Exception as error:  # noqa: BLE001 - a fault of ours must neither admit nor hang
        # Not a verdict: the failurePolicy decides, and the user reads this sentence.
        sentence = f"review {asked.uid} could not be decided because of a fault in the webhook"
        return Answered(answer=refusal(Outcome.FAILED, sentence), asked=asked, fault=error)
    verdict = ruling.verdict
    answer = Answer(outcome=outcome_of(verdict.kind), body=rendered)
    return Answered(answer=answer, asked=asked, verdict=verdict)


def _malformed(error: MalformedReviewError, decoded: Any) -> Answered:
    # An answer in v1 to another version would only hide the sentence behind a complaint about
    # the version, so that gets an HTTP error.
    versioned = (
        isinstance(decoded, dict)
        and decoded.get("apiVersion") == "admission.k8s.io/v1"
        and decoded.get("kind") == "AdmissionReview"
    )
    if not (error.uid and versioned):
        return Answered(answer=refusal(Outcome.MALFORMED, str(error)))
    verdict = Verdict(code=_MALFORMED_CODE, reason="BadRequest", message=str(error))
    answer = Answer(outcome=Outcome.DENIED, body=orjson.dumps(render(verdict, error.uid)))
    return Answered(answer=answer, verdict=verdict)
