"""What a call may look like: its head, its size, its JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from webhook.outcome import Answer, Outcome, refusal

MOST_BODY_BYTES: Final = 7 * 2**20
"""A user's write is at most 3 MiB. A review holds the object and the old object, 6 MiB, and 1 MiB
is left for what the API server adds: defaults, managedFields, userInfo, the envelope.

Source: kubernetes/apiserver, ``MaxRequestBodyBytes``; controller-runtime takes 7 MiB as well.
"""

_JSON: Final = re.compile(r"application/json\s*(?:;.*)?", re.ASCII | re.IGNORECASE)
_TIMEOUT: Final = re.compile(r"([0-9]{1,4})s", re.ASCII)
_IDENTITY: Final = frozenset({"", "identity"})


def refuse_head(method: str, headers: Mapping[str, str], length: int | None) -> Answer | None:
    """The refusal of a call by its head alone, or None for a sound one.

    A compressed body is refused before a byte of it is read: the API server sends none, and
    200 KB may stand for 200 MB.
    """
    if method != "POST":
        return refusal(Outcome.NOT_ALLOWED, "reviews are sent by POST")
    if not _JSON.fullmatch(headers.get("Content-Type", "")):
        return refusal(Outcome.UNSUPPORTED, "the content type has to be application/json")
    if headers.get("Content-Encoding", "").strip().lower() not in _IDENTITY:
        return refusal(Outcome.UNSUPPORTED, "compressed bodies are not accepted")
    if length is not None and length > MOST_BODY_BYTES:
        return too_large()
    return None


def too_large() -> Answer:
    """The refusal of a body beyond the limit."""
    return refusal(Outcome.TOO_LARGE, f"the body has more than {MOST_BODY_BYTES} bytes")


def patience_s(query_timeout: str | None, most_s: float) -> float:
    """How long a body may take: as long as we wait for any, or as long as its sender waits.

    Args:
        query_timeout: The query parameter ``timeout`` that the API server sends, such as ``3s``.
        most_s: What we wait for any body.
    """
    match = _TIMEOUT.fullmatch(query_timeout or "")
    return min(most_s, float(match[1])) if match and int(match[1]) else most_s


def decode(body: bytes) -> Any:
    """The JSON value of a body.

    orjson refuses what has no place in a review: NaN and infinity, invalid UTF-8, lone
    surrogates, nesting beyond 1024 levels. Integers beyond 64 bits become floats; whoever
    reads an integer checks its type.

    Raises:
        ValueError: The body is no JSON; the sentence says where.
    """
    try:
        return orjson.loads(body)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
