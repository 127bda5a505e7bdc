"""Facts: what the log says of a call, and never a pod's contents."""

from __future__ import annotations

from typing import Any, Final

from webhook.answer import Answered
from webhook.outcome import Outcome
from webhook.verdict import Verdict

_LONGEST_TEXT: Final = 253


def facts_of(answered: Answered) -> dict[str, Any]:
    """What is known of a call, for one line of the log."""
    facts: dict[str, Any] = {"outcome": answered.answer.outcome}
    if answered.asked is not None:
        facts["uid"] = answered.asked.uid[:_LONGEST_TEXT]
        facts |= answered.asked.reading.facts
    if answered.verdict is not None:
        _tell_verdict(answered.verdict, answered.answer.outcome, facts)
    return facts


def _tell_verdict(verdict: Verdict, outcome: Outcome, facts: dict[str, Any]) -> None:
    said = verdict.audit_annotations
    facts["code"] = verdict.code
    facts["warnings"] = len(verdict.warnings)
    for key in ("profile", "would"):
        if key in said:
            facts[key] = said[key]
    if outcome is Outcome.DENIED:
        # The field, never what stands in it.
        facts["field"] = said.get("denied", "")[:_LONGEST_TEXT]
    if verdict.grants:
        facts["grants"] = [grant.resource for grant in verdict.grants]
