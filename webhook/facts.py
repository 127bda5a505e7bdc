"""Facts: what the log says of a call, and never a pod's contents."""

from __future__ import annotations

from typing import Any, Final

from webhook.answer import Answered
from webhook.outcome import Outcome
from webhook.review import Review
from webhook.verdict import Verdict

_LONGEST_NAME: Final = 253


def facts_of(answered: Answered) -> dict[str, Any]:
    """What is known of a call, for one line of the log.

    Never the object: it may hold secrets, and it is as long as its author likes. Texts that a
    caller chooses are cut.
    """
    facts: dict[str, Any] = {"outcome": answered.answer.outcome}
    if answered.review is not None:
        _tell_review(answered.review, facts)
    if answered.verdict is not None:
        _tell_verdict(answered.verdict, answered.answer.outcome, facts)
    return facts


def _tell_review(review: Review, facts: dict[str, Any]) -> None:
    facts["uid"] = review.uid[:_LONGEST_NAME]
    facts["operation"] = review.operation
    facts["kind"] = review.kind[:_LONGEST_NAME]
    facts["namespace"] = review.namespace[:_LONGEST_NAME]
    facts["name"] = review.name[:_LONGEST_NAME]
    facts["dry_run"] = review.dry_run


def _tell_verdict(verdict: Verdict, outcome: Outcome, facts: dict[str, Any]) -> None:
    said = verdict.audit_annotations
    facts["code"] = verdict.code
    facts["warnings"] = len(verdict.warnings)
    for key in ("profile", "would"):
        if key in said:
            facts[key] = said[key]
    if outcome is Outcome.DENIED:
        # The field, never what stands in it.
        facts["field"] = said.get("denied", "")[:_LONGEST_NAME]
    if verdict.grants:
        facts["grants"] = [grant.resource for grant in verdict.grants]
