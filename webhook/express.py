"""The short way of a call: a review in the very form in which API servers send it.

aiohttp's way through parser, queue, task, request and response costs more than the decision. A
call whose head is known to the last byte needs none of it. Whatever looks otherwise takes
aiohttp's way, with all its care; here nothing is guessed and nothing repaired.

Values and texts only; whoever reads and writes the bytes is ``connection``.
"""

from __future__ import annotations

import re
import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple

from webhook.outcome import Answer, Outcome

LONGEST_HEAD: Final = 2048
_END: Final = b"\r\n\r\n"
_HEAD: Final = re.compile(
    rb"POST /mutate(?:\?timeout=[0-9]{1,4}s)? HTTP/1\.1\r\n"
    rb"((?:[A-Za-z-]{1,40}: [\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?\r\n){1,20})\r\n"
)
_IGNORED: Final = frozenset(
    {"accept", "accept-encoding", "host", "user-agent", "traceparent", "tracestate"}
)
"""Header fields that change nothing about an answer."""
_LENGTH: Final = re.compile(r"[1-9][0-9]{0,6}", re.ASCII)


class Framed(NamedTuple):
    """Where a call's body is."""

    begins: int
    ends: int


def framed(data: bytes) -> Framed | None:
    """Where the body of a call is, by its head; None for a head that is not one of these.

    Args:
        data: The bytes so far, from the call's first one.
    """
    end = data.find(_END, 0, LONGEST_HEAD)
    if end < 0:
        return None
    begins = end + len(_END)
    length = _body_length(data[:begins])
    return None if length is None else Framed(begins, begins + length)


@lru_cache(maxsize=256)
def _body_length(head: bytes) -> int | None:
    """What a head says about its body's length; None where it is not one of these.

    Remembered: an API server's heads differ in little but this.
    """
    match = _HEAD.fullmatch(head)
    if match is None:
        return None
    fields: dict[str, str] = {}
    for line in match[1].decode("ascii").splitlines():
        name, _, value = line.partition(": ")
        if name.lower() in fields:
            return None
        fields[name.lower()] = value
    length = fields.pop("content-length", "")
    if fields.pop("content-type", "") != "application/json" or not _LENGTH.fullmatch(length):
        return None
    return int(length) if "host" in fields and fields.keys() <= _IGNORED else None


def rendered(answer: Answer, server: str, *, closes: bool) -> bytes:
    """An answer as bytes of HTTP/1.1.

    Args:
        answer: The answer.
        server: What we call ourselves.
        closes: Whether the connection ends with it.
    """
    head = _head(answer.outcome, answer.content_type, server, closes=closes)
    return b"%b%d\r\nDate: %b\r\n\r\n%b" % (
        head,
        len(answer.body),
        _date(int(time.time())),
        answer.body,
    )


@lru_cache(maxsize=64)
def _head(outcome: Outcome, content_type: str, server: str, *, closes: bool) -> bytes:
    """The head of an answer up to its length; few kinds of answers exist."""
    status = outcome.http_status
    more = "".join(f"{name}: {value}\r\n" for name, value in outcome.headers.items())
    if closes:
        more += "Connection: close\r\n"
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nServer: {server}\r\n{more}"
        f"Content-Type: {content_type}\r\nContent-Length: "
    )
    return head.encode("ascii")


@lru_cache(maxsize=1)
def _date(now_s: int) -> bytes:
    return formatdate(now_s, usegmt=True).encode("ascii")
