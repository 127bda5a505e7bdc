"""Pods that are alike: a controller makes many from one template, and they get one verdict.

A verdict on a new pod is a function of the pod's essence, of the profile and of the inventory;
that function sees nothing else but the pod's name, which only messages say. So a verdict that is
remembered is the one that would be given again; it goes with the profile and the inventory that it
stands on. Its part of an answer is remembered with it, since to write it costs as much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

import orjson

from sharing.api.profile import SharingProfile
from sharing.inventory import Inventory
from webhook.admission import admit, admit_new
from webhook.judgement import judge
from webhook.policies import Governing, Policies
from webhook.reading import Reading
from webhook.verdict import Verdict, render

_MOST: Final = 512
"""How many are: 8 MiB of essences at the most, and verdicts about as long."""
_SUBJECT: Final = "pod"
"""What messages that are remembered begin with, in place of a pod's name."""
_BEFORE_UID: Final = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":'
)


class Ruling(NamedTuple):
    """A verdict, and the answer that tells it."""

    verdict: Verdict
    after_uid: bytes
    """The answer from the end of the request's uid on."""

    def answer(self, uid: str) -> bytes:
        """The answer to the request of this uid, as JSON."""
        return b"%b%b%b" % (_BEFORE_UID, orjson.dumps(uid), self.after_uid)


def rule(reading: Reading, policies: Policies, inventory: Inventory | None) -> Ruling:
    """The ruling on a review: ``admit``, remembered for pods that are alike."""
    kept, namespace = reading.kept, reading.review.namespace
    if kept is None:
        return ruling_of(admit(reading.review, policies, inventory))
    governing = policies.profile_for(namespace)
    if governing.profile is None:
        pod = orjson.loads(kept)
        return ruling_of(admit_new(pod, namespace, governing, inventory, subject=reading.subject))
    found = _memory(inventory)(kept, governing.profile)
    if _is_told_of(found.verdict):
        return ruling_of(_told_of(reading.subject, found.verdict))
    return found


@lru_cache(maxsize=2)
def _memory(inventory: Inventory | None) -> Callable[[bytes, SharingProfile], Ruling]:
    """From an essence and a profile to their ruling, under one inventory.

    With the inventory goes what was said of it, and with that the inventory itself: a large one
    takes megabytes, and nodes come and go.
    """

    @lru_cache(maxsize=_MOST)
    def remembered(kept: bytes, profile: SharingProfile) -> Ruling:
        governing = Governing(profile=profile)
        return ruling_of(judge(orjson.loads(kept), _SUBJECT, governing, inventory))

    return remembered


def ruling_of(verdict: Verdict) -> Ruling:
    """A verdict with the answer that tells it."""
    _, _, after = orjson.dumps(render(verdict, "")).partition(_BEFORE_UID + b'""')
    return Ruling(verdict, after)


def _is_told_of(verdict: Verdict) -> bool:
    """Whether a verdict names the pod: a denial does, or what is said in place of one."""
    return bool(verdict.message) or "message" in verdict.audit_annotations


def _told_of(subject: str, verdict: Verdict) -> Verdict:
    """A verdict on any pod as one on this pod."""
    said = {
        key: subject + value.removeprefix(_SUBJECT) if key == "message" else value
        for key, value in verdict.audit_annotations.items()
    }
    message = verdict.message and subject + verdict.message.removeprefix(_SUBJECT)
    return replace(verdict, message=message, audit_annotations=said)
