"""The same requests to two API servers, and what of their answers must be the same.

A story is a few requests in order, in a namespace or with names of its own. What differs from run
to run (times, uids, revisions, tokens) is replaced by a word; all else is compared: status codes,
whole bodies, warnings, media types, events of watches.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

_TIMEOUT: Final = aiohttp.ClientTimeout(total=20)
_WORDS: Final = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"too old resource version: \d+ \(\d+\)"), "too old resource version: RV (RV)"),
    (re.compile(r"Too large resource version: \d+, current: \d+"), "Too large: RV, RV"),
    (re.compile(r"(?<=ResourceVersion in record )\(\d+\)"), "(RV)"),
    (re.compile(r"\bG-[a-z0-9]{5}\b"), "G-XXXXX"),
    (re.compile(r"^\d{1,3}s$"), "AGE"),
    # What Go's parsers and printers say of texts and objects is not compared.
    (re.compile(r"json parse error: .*", re.DOTALL), "json parse error"),
    (re.compile(r"error encoding patch: yaml: .*", re.DOTALL), "error encoding patch: yaml"),
    (re.compile(r"continue key is not valid.*", re.DOTALL), "continue key is not valid"),
    (re.compile(r'Invalid value: "(\{.*|map\[.*\])": '), 'Invalid value: "OBJECT": '),
    (re.compile(r"(?<=was previously negative\)).*", re.DOTALL), ""),
)
_REVISIONS: Final = frozenset({"resourceVersion"})
_DROPPED: Final = frozenset(
    {"managedFields", "remainingItemCount", "retryAfterSeconds", "description"}
)
_RANDOM: Final = re.compile(r"(?<=-)[bcdfghjklmnpqrstvwxz2456789]{5}$")
"""What ``generateName`` appends. Source: apimachinery, ``rand.String``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One request.

    Attributes:
        method: Of HTTP.
        path: With query; ``$name`` stands for what an earlier step kept.
        body: A JSON value, or text as it is; ``$name`` as in the path.
        media: Its Content-Type.
        accept: Wanted media type.
        keep: What later steps need, by name: dotted places in the answer's body.
        events: How many events of a watch to read; none is a plain answer.
        silent: Run it, but compare nothing.
    """

    method: str
    path: str
    body: Any = None
    media: str = "application/json"
    accept: str = ""
    keep: Mapping[str, str] = field(default_factory=dict)
    events: int = 0
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Requests that belong together."""

    name: str
    steps: tuple[Step, ...]


class Server:
    """One API server to ask.

    Args:
        url: Its address.
        session: With the credentials of an administrator.
    """

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def tell(self, story: Story) -> list[Any]:
        """The answers to a story, in words that any server would use."""
        known: dict[str, str] = {}
        return [
            answer for step in story.steps if (answer := await self._take(step, known)) is not None
        ]

    async def _take(self, step: Step, known: dict[str, str]) -> Any:
        body = None
        if step.body is not None:
            text = step.body if isinstance(step.body, str) else _compact(step.body)
            body = _filled(text, known).encode()
        headers = {"Content-Type": step.media} if body is not None else {}
        if step.accept:
            headers["Accept"] = step.accept
        async with self._session.request(
            step.method, self._url + _filled(step.path, known), data=body, headers=headers,
            timeout=_TIMEOUT,
        ) as response:  # fmt: skip
            if step.events:
                content: Any = [await _event(response) for _ in range(step.events)]
            else:
                content = _decoded(await response.text())
        for name, place in step.keep.items():
            known[name] = str(_at(content, place))
        if step.silent:
            return None
        media = response.headers.get("Content-Type", "")
        warnings = [text.split('"', 1)[1][:-1] for text in response.headers.getall("Warning", [])]
        answer = {"asked": f"{step.method} {step.path}", "code": response.status, "media": media}
        if warnings:
            answer["warnings"] = warnings
        return {**answer, "body": anonymous(content)}


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _filled(text: str, known: Mapping[str, str]) -> str:
    for name, value in known.items():
        text = text.replace(f"${name}", value)
    return text


async def _event(response: aiohttp.ClientResponse) -> Any:
    line = await asyncio.wait_for(response.content.readline(), 10)
    return _decoded(line.decode()) if line else "the watch ended"


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _at(value: Any, place: str) -> Any:
    """A part of an answer; nothing where the answer was a refusal."""
    for word in place.split("."):
        value = value[int(word)] if isinstance(value, list) else value.get(word, {})
    return value


def anonymous(value: Any) -> Any:
    """A value without what differs from run to run."""
    if isinstance(value, dict):
        return {
            key: "RV" if key in _REVISIONS and each
            else "TOKEN" if key == "continue"
            else _RANDOM.sub("XXXXX", each) if key == "name" and "generateName" in value
            else anonymous(each)
            for key, each in value.items()
            if key not in _DROPPED
        }  # fmt: skip
    if isinstance(value, list):
        return [anonymous(each) for each in value]
    if isinstance(value, str):
        for pattern, word in _WORDS:
            value = pattern.sub(word, value)
    return value


def recorded(folder: Path, story: Story) -> Any:
    """What the real API server answered when it was last asked."""
    return json.loads((folder / f"{story.name}.json").read_text("utf-8"))


def record(folder: Path, story: Story, answers: Any) -> None:
    """Keep what the real API server answered."""
    folder.mkdir(exist_ok=True)
    text = json.dumps(answers, indent=1, sort_keys=True, ensure_ascii=False)
    (folder / f"{story.name}.json").write_text(f"{text}\n", "utf-8")
