"""Bytes of a file or stream into documents that know where they stand."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from sharing.documents.builder import DEEPEST, Builder, too_deep
from sharing.documents.scalar import fits_64_bits
from sharing.errors import InputError, shown

_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]\n]')
_ITEMS_DEPTH: Final = 2
MOST_BYTES: Final = 32 * 2**20
"""Of one file or stream: some ten thousand manifests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document of a file or stream."""

    source: str
    """The file's name as the reader knows it."""
    number: int
    """Position within the file, from 1."""
    line: int
    """Where it starts, from 1."""
    value: Any
    item_lines: tuple[int, ...] = ()
    """Where each member of its ``items`` starts; empty for what is no List."""

    @property
    def where(self) -> str:
        """How messages call it."""
        return f"{self.source}, document {self.number} (line {self.line})"


def read_file(path: Path) -> tuple[Document, ...]:
    """The documents of a file.

    Raises:
        InputError: It cannot be read, or as ``read_documents``.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(str(path), f"it cannot be read: {error.strerror}") from None
    return read_documents(data, str(path))


def read_documents(data: bytes, source: str) -> tuple[Document, ...]:
    """The documents of a file; empty ones are left out.

    Args:
        data: The file's bytes, UTF-8.
        source: How messages call the file.

    Raises:
        InputError: It is too large, no UTF-8, no YAML, or uses what is refused here.
    """
    if len(data) > MOST_BYTES:
        raise InputError(
            source,
            f"it has more than {MOST_BYTES} bytes",
            expected=f"at most {MOST_BYTES // 2**20} MiB",
            fix="split it into several files",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            source, f"byte {error.start} is no UTF-8", fix="save it as UTF-8"
        ) from None
    if text.lstrip()[:1] in ("{", "["):
        value = _read_json(text, source)
        if value is not None:
            lines = _item_lines(text) if isinstance(value, dict) and "items" in value else ()
            return (Document(source=source, number=1, line=1, value=value, item_lines=lines),)
    return _read_yaml(text, source)


def _read_json(text: str, source: str) -> Any:
    """The value of a JSON document, or None where it is something else, such as flow YAML."""
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_number,
            parse_float=_number,
            parse_int=_number,
        )
        # Half of a surrogate pair is legal JSON, but no text that can be written out again.
        json.dumps(value, ensure_ascii=False).encode()
    except InputError as error:
        raise error.about(source) from None
    except UnicodeEncodeError:
        raise InputError(
            source, "it holds half of a surrogate pair", expected="text that is Unicode"
        ) from None
    except RecursionError:
        raise too_deep(source) from None
    except ValueError:
        return None
    if _height(value) > DEEPEST:
        raise too_deep(source)
    return value


def _item_lines(text: str) -> tuple[int, ...]:
    """Lines on which the members of ``items`` start, in JSON that has been read already."""
    lines: list[int] = []
    line, depth, key, listed = 1, 0, "", False
    for token in _JSON_TOKEN.findall(text):
        match token:
            case "\n":
                line += 1
            case "{" | "[":
                if depth == 1:
                    listed = token == "[" and key == '"items"'  # noqa: S105 - of a grammar
                elif depth == _ITEMS_DEPTH and listed:
                    lines.append(line)
                depth += 1
            case "}" | "]":
                depth -= 1
            case _:
                key = token if depth == 1 else key
    return tuple(lines)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InputError(
            "", f"key {shown(twice)} stands twice in one mapping", fix="remove one of them"
        )
    return mapping


def _number(text: str) -> int | float:
    whole = text.lstrip("-").isdecimal()
    # Longer than any 64-bit number; Python refuses to read thousands of digits.
    number: int | float = int(text) if whole and len(text) < 32 else float(text)  # noqa: PLR2004
    fits = fits_64_bits(number) if isinstance(number, int) else abs(number) < float("inf")
    if not fits or (whole and isinstance(number, float)):
        raise InputError("", f"{shown(text)} is no number of 64 bits", fix="put it in quotes")
    return number


def _height(value: Any) -> int:
    """Levels of nesting, counted without recursion."""
    height, level = 0, [value]
    while level:
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        height += bool(level)
    return height


def _read_yaml(text: str, source: str) -> tuple[Document, ...]:
    builder = Builder(source)
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark is not None else ""
        raise InputError(
            source, f"{line}it is no YAML: {error.problem or error.context}", fix="correct the line"
        ) from None
    except yaml.YAMLError as error:
        raise InputError(source, f"it is no YAML: {str(error).splitlines()[0]}") from None
    return tuple(
        Document(
            source=source,
            number=found.number,
            line=found.line,
            value=found.value,
            item_lines=found.item_lines,
        )
        for found in builder.found
    )
