"""Readings: what a body says, as far as a decision and the log need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from webhook.admission import is_new_pod, subject_of
from webhook.essence import essence
from webhook.review import Review

LONGEST: Final = 16 * 1024
"""Bytes of an essence that is kept; ordinary pods have one or two thousand."""
_LONGEST_NAME: Final = 253


class Reading(NamedTuple):
    """A review, apart from its uid."""

    review: Review
    """Without its object, where the essence stands for it."""
    kept: bytes | None
    """The essence of a pod that is about to be created; None for what is judged whole."""
    subject: str
    """What messages call such a pod."""
    facts: Mapping[str, Any]
    """What the log says of it. Never the object: it may hold secrets, and it is as long as its
    author likes. Texts that a caller chooses are cut."""


def reading_of(review: Review) -> Reading:
    """What a review says."""
    kept, subject = None, ""
    if review.object is not None and is_new_pod(review):
        kept, subject = _kept(review.object), subject_of(review.object, review.namespace)
    facts = {
        "operation": review.operation,
        "kind": review.kind[:_LONGEST_NAME],
        "namespace": review.namespace[:_LONGEST_NAME],
        "name": review.name[:_LONGEST_NAME],
        "dry_run": review.dry_run,
    }
    return Reading(review, kept, subject, facts)


def _kept(pod: dict[str, Any]) -> bytes | None:
    try:
        kept = essence(pod)
    except TypeError:
        return None
    return kept if len(kept) <= LONGEST else None
