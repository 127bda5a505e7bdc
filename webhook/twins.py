"""Twins: bodies that differ in nothing but what each review has of its own.

A controller that makes a hundred pods from one template brings about a hundred bodies that are
the same to the byte, but for the request's uid and the name of the volume of the service
account's token. To read such a body costs more than anything else that is done for it, so what
its twin said is remembered.

Both places are known by their bytes alone, so they are proven when a body is remembered: it is
read with random marks in them, and what is remembered holds neither mark where it matters. What a
caller may write there thus changes nothing, whatever else he writes.

Source: kubernetes/apiserver, AdmissionReview as its encoder writes it; kubernetes/kubernetes,
plugin/pkg/admission/serviceaccount, and apimachinery, util/rand.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from typing import Final, TypeVar
from uuid import uuid4

from webhook.limits import decode
from webhook.reading import Reading, reading_of
from webhook.review import MalformedReviewError, parse_review

_LONGEST: Final = 32 * 1024
"""Bytes of a body that is remembered."""
_COLD_PACE: Final = 4
_BEGIN: Final = b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"'
_UID: Final = re.compile(rb'[0-9a-f-]{36}(?=")')
_VOLUME: Final = b'"kube-api-access-'
_SUFFIX: Final = b"bcdfghjklmnpqrstvwxz2456789"
"""What the API server makes ends of names of: neither a word nor a part of one."""
_SUFFIX_LENGTH: Final = 5
_ENDS: Final = (b'"', b'\\"')
"""Of the name: managedFields tell of keys in JSON inside of JSON."""
_NO_UID: Final = str(uuid4())
_NO_SUFFIX: Final = secrets.token_hex(16)
_MARKED_BEGIN: Final = _BEGIN + _NO_UID.encode("ascii")
_MARKED_SUFFIX: Final = _NO_SUFFIX.encode("ascii")

Key = TypeVar("Key")
Value = TypeVar("Value")


class Twins:
    """What bodies said that came more than once. Bounded; the oldest are forgotten first.

    Args:
        most: Bodies that are remembered, 8 MiB at the most.
        most_met: Bodies that are known to have come, by their hashes.
        cold: After so many bodies in a row without a twin only each fourth one is looked at,
            until one has a twin again.
    """

    def __init__(self, *, most: int = 256, most_met: int = 4096, cold: int = 64) -> None:
        self._most, self._most_met, self._cold = most, most_met, cold
        self._readings: dict[bytes, Reading | None] = {}
        self._met: dict[int, None] = {}
        """Hashes of bodies that came once: most never come again, and to keep them costs."""
        self._strangers = 0
        """Bodies in a row that had no twin."""

    def recall(self, body: bytes) -> tuple[str, Reading] | None:
        """The uid of a body and what it says; None for one that has to be read by itself."""
        if len(body) > _LONGEST or not body.startswith(_BEGIN):
            return None
        uid = _UID.match(body, len(_BEGIN))
        if uid is None or self._is_passed_over():
            return None
        marked = _marked(body, uid.end())
        reading = self._readings.get(marked) or self._meet(marked)
        if reading is None:
            return None
        self._strangers = 0
        return uid[0].decode("ascii"), reading

    def _is_passed_over(self) -> bool:
        self._strangers += 1
        return self._strangers > self._cold and self._strangers % _COLD_PACE != 0

    def _meet(self, marked: bytes) -> Reading | None:
        """What a body says that is not the first one of its kind."""
        known = hash(marked)
        if known not in self._met:
            _put(self._met, known, None, self._most_met)
            return None
        if marked not in self._readings:
            _put(self._readings, marked, _read(marked), self._most)
        return self._readings[marked]


def _put(held: dict[Key, Value], key: Key, value: Value, most: int) -> None:
    if len(held) >= most:
        del held[next(iter(held))]
    held[key] = value


def _marked(body: bytes, uid_end: int) -> bytes:
    """A body with marks in place of what each review has of its own."""
    first, *others = body.split(_VOLUME)
    parts = [_MARKED_BEGIN, first[uid_end:]]
    for other in others:
        suffix, end = other[:_SUFFIX_LENGTH], other[_SUFFIX_LENGTH:]
        if end.startswith(_ENDS) and not suffix.translate(None, _SUFFIX):
            parts += (_VOLUME, _MARKED_SUFFIX, end)
        else:
            parts += (_VOLUME, other)
    return b"".join(parts)


def _read(marked: bytes) -> Reading | None:
    """What a marked body says; None where that hangs on a mark, or on more than its essence."""
    try:
        review = parse_review(decode(marked))
    except (ValueError, MalformedReviewError):
        return None
    # Where the uid stands a second time, that one counts.
    if review.uid != _NO_UID:
        return None
    reading = reading_of(review)
    if reading.kept is None or _MARKED_SUFFIX in reading.kept:
        return None
    if any(_NO_SUFFIX in str(text) for text in (reading.subject, *reading.facts.values())):
        return None
    return reading._replace(review=replace(review, object=None, old_object=None))
