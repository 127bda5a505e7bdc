"""Values out of a YAML parser's events, without recursion and within bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from sharing.documents.scalar import is_no_json, plain_scalar
from sharing.errors import InputError, shown

DEEPEST: Final = 200
"""Levels of nesting; the API server's own objects stay below 64."""
_MOST_NODES: Final = 4_000_000
"""Values in one file, aliases counted as what they stand for."""
_MOST_ALIASED_NODES: Final = 100_000
_ITEMS_DEPTH: Final = 2
"""Open collections around a member of a List's ``items``: the List, the list."""
_TAG: Final = "tag:yaml.org,2002:"
_COLLECTION_TAGS: Final = {_TAG + "map", _TAG + "seq", "!"}
_PLAIN_TAGS: Final = {_TAG + known for known in ("int", "float", "bool", "null")}


def too_deep(subject: str) -> InputError:
    """The error for nesting beyond ``DEEPEST``."""
    return InputError(subject, "it is nested too deeply", expected=f"at most {DEEPEST} levels")


@dataclass(frozen=True, slots=True)
class Found:
    """A finished document: its position, its lines, its value."""

    number: int
    line: int
    value: Any
    item_lines: tuple[int, ...]
    """Where each member of its ``items`` starts."""


@dataclass(slots=True)
class _Open:
    """A collection whose end has not come yet."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    line: int
    key: str | None = None
    merging: bool = False
    merges: list[dict[str, Any]] = field(default_factory=list)
    nodes: int = 1
    height: int = 0


@dataclass(frozen=True, slots=True)
class _Anchored:
    value: Any
    nodes: int
    height: int


class Builder:
    """Turns the parser's events into documents; empty ones are left out."""

    def __init__(self, source: str) -> None:
        self.found: list[Found] = []
        self._source = source
        self._number = 0
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}
        self._nodes = 0
        self._aliased = 0
        self._item_lines: list[int] = []

    def take(self, event: yaml.Event) -> None:
        """Builds on by one event.

        Raises:
            InputError: The event is nothing that a manifest may hold.
        """
        match event:
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close()
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.DocumentStartEvent():
                self._number += 1
                self._anchors.clear()
            case _:
                pass

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            self._key(top, event)
            return
        value = self._value(event)
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(value, 1, 0)
        self._add(value, _line(event), 1, 0)

    def _key(self, top: _Open, event: yaml.ScalarEvent) -> None:
        plain = event.implicit[0] and not event.style
        if plain and event.value == "<<":
            top.key, top.merging = "<<", True
            return
        value = self._value(event)
        if value is None:
            raise self._error(event, "a key is empty")
        # JSON's keys are texts: kubectl writes 1 as "1" and yes as "true".
        key = str(value).lower() if isinstance(value, bool) else event.value
        if key in top.value:
            raise self._error(
                event, f"key {shown(key)} stands twice in one mapping", fix="remove one of them"
            )
        top.key = key

    def _open(self, event: yaml.CollectionStartEvent) -> None:
        if event.tag is not None and event.tag not in _COLLECTION_TAGS:
            raise self._error(event, f"tag {shown(event.tag)} is not accepted", fix="remove it")
        if len(self._stack) >= DEEPEST:
            raise too_deep(f"{self._source}, line {_line(event)}")
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            raise self._error(event, "a key is a list or mapping", expected="a text as key")
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._stack.append(_Open(value, event.anchor, _line(event)))

    def _close(self) -> None:
        done = self._stack.pop()
        for merged in done.merges:
            for key, value in merged.items():
                if isinstance(done.value, dict):
                    done.value.setdefault(key, value)
        if done.anchor:
            self._anchors[done.anchor] = _Anchored(done.value, done.nodes, done.height)
        self._add(done.value, done.line, done.nodes, done.height)

    def _alias(self, event: yaml.AliasEvent) -> None:
        top = self._stack[-1] if self._stack else None
        found = self._anchors.get(event.anchor or "")
        if found is None:
            raise self._error(event, f"*{event.anchor} stands before &{event.anchor} is complete")
        self._aliased += found.nodes
        if self._aliased > _MOST_ALIASED_NODES:
            raise self._error(
                event,
                "its aliases stand for too many values",
                expected=f"at most {_MOST_ALIASED_NODES}",
                fix="write them out",
            )
        if len(self._stack) + found.height > DEEPEST:
            raise too_deep(f"{self._source}, line {_line(event)}")
        if top is not None and isinstance(top.value, dict) and top.key is None:
            raise self._error(event, "a key is an alias", expected="a text as key")
        # Each use gets its own copy, so that a change of one is not a change of all.
        self._add(_copied(found.value), _line(event), found.nodes, found.height)

    def _add(self, value: Any, line: int, nodes: int, height: int) -> None:
        self._nodes += 1
        if self._nodes + self._aliased > _MOST_NODES:
            raise InputError(
                self._source, f"it holds more than {_MOST_NODES} values", fix="split it"
            )
        if not self._stack:
            self._end_document(value, line)
            return
        top = self._stack[-1]
        top.nodes += nodes
        top.height = max(top.height, height + 1)
        if isinstance(top.value, list):
            top.value.append(value)
            if len(self._stack) == _ITEMS_DEPTH and self._stack[0].key == "items":
                self._item_lines.append(line)
        elif top.merging:
            self._merge(top, value)
        elif top.key is not None:
            top.value[top.key] = value
        top.key = None

    def _merge(self, top: _Open, value: Any) -> None:
        top.merging = False
        listed = value if isinstance(value, list) else [value]
        if not all(isinstance(item, dict) for item in listed):
            raise InputError(
                f"{self._source}, line {top.line}",
                "<< merges something that is no mapping",
                expected="a mapping, or a list of mappings",
            )
        top.merges.extend(listed)

    def _end_document(self, value: Any, line: int) -> None:
        lines, self._item_lines = tuple(self._item_lines), []
        if value is not None:
            self.found.append(Found(self._number, line, value, lines))

    def _value(self, event: yaml.ScalarEvent) -> Any:
        tag = event.tag
        if tag is None:
            return self._plain(event) if event.implicit[0] else event.value
        if tag in (_TAG + "str", "!"):
            return event.value
        if tag in _PLAIN_TAGS:
            return self._plain(event)
        raise self._error(event, f"tag {shown(tag)} is not accepted", fix="remove it")

    def _plain(self, event: yaml.ScalarEvent) -> Any:
        text = event.value
        if is_no_json(text):
            raise self._error(event, f"{text} is no number that JSON has", fix="put it in quotes")
        return plain_scalar(text)

    def _error(
        self, event: yaml.Event, wrong: str, *, expected: str = "", fix: str = ""
    ) -> InputError:
        where = f"{self._source}, line {_line(event)}"
        return InputError(where, wrong, expected=expected, fix=fix)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0


def _copied(value: Any) -> Any:
    """A deep copy of JSON values; never deeper than what was read."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
