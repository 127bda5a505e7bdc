"""In which form a client wants its answer, and in which form its body comes (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson
import yaml

from embedded.apiserver import protobuf
from embedded.apiserver.status import not_acceptable, unsupported_media_type

JSON: Final = "application/json"
YAML: Final = "application/yaml"
_ACCEPTED: Final = (JSON, YAML)
_KNOWN: Final = (JSON, YAML, protobuf.MEDIA_TYPE)
_SHOWN: Final = 300  # characters of a parser's complaint
_YAML_TYPES: Final = frozenset({YAML, "application/apply-patch+yaml", "text/yaml"})
_BODIES: Final = frozenset(
    {
        JSON,
        YAML,
        protobuf.MEDIA_TYPE,
        "text/yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    }
)


class Shape(StrEnum):
    """What of the object is sent."""

    OBJECT = "object"
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    DISCOVERY = "APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The form that a client takes."""

    media: str = JSON
    shape: Shape = Shape.OBJECT
    discovery_version: str = ""


def choose(accept: str) -> Answer:
    """The first acceptable form that this server can write.

    Raises:
        StatusError: 406, there is none.
    """
    for part in (accept or "*/*").split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        named = dict(p.split("=", 1) for p in parameters if "=" in p)
        if media in {"*/*", "application/*", "*"}:
            return Answer()
        if media not in _ACCEPTED:
            continue
        shape = _shape(named.get("as", ""))
        if shape is not None:
            return Answer(media=media, shape=shape, discovery_version=named.get("v", ""))
    raise not_acceptable(_KNOWN)


def _shape(wanted: str) -> Shape | None:
    if not wanted:
        return Shape.OBJECT
    if wanted in {"PartialObjectMetadata", "PartialObjectMetadataList"}:
        return Shape.METADATA
    return Shape(wanted) if wanted in {"Table", "APIGroupDiscoveryList"} else None


class UnreadableError(Exception):
    """A text is not in the form that its media type names.

    Args:
        why: The parser's complaint.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def read_body(raw: bytes, content_type: str) -> Any:
    """The data that a body holds.

    Raises:
        StatusError: 415 for an unknown form.
        UnreadableError: The text is not in its form.
    """
    media = content_type.partition(";")[0].strip().lower() or JSON
    if media not in _BODIES:
        raise unsupported_media_type(_KNOWN)
    try:
        if media == protobuf.MEDIA_TYPE:
            return protobuf.read(raw)
        return read_yaml(raw) if media in _YAML_TYPES else orjson.loads(raw)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())[:_SHOWN] or type(error).__name__
        raise UnreadableError(reason) from error


class _Loader(yaml.CSafeLoader):
    """YAML as the API server reads it: dates stay texts."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(raw: bytes) -> Any:
    """One YAML document as JSON data.

    Aliases are refused: a few lines of them stand for gigabytes.

    Raises:
        ValueError: The document has aliases or holds what JSON has not.
        yaml.YAMLError: It is no YAML.
    """
    for event in yaml.parse(raw, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("yaml: aliases are not accepted; write the value out")  # noqa: TRY004
    return _as_json(yaml.load(raw, Loader=_Loader))  # noqa: S506 - derived from the safe loader


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    finite = not isinstance(value, float) or math.isfinite(value)
    if value is None or (isinstance(value, (str, int, float)) and finite):
        return value
    raise ValueError(f"yaml: a {type(value).__name__} has no place in JSON")


def _key(key: Any) -> str:
    """Keys become texts, as in the API server's conversion to JSON."""
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, (str, int, float)):
        return str(key)
    raise ValueError(f"yaml: a {type(key).__name__} cannot be a key")
