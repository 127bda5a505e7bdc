"""In which form a client wants its answer, and in which form its body comes (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson
import yaml

from embedded.apiserver import protobuf
from embedded.apiserver.status import bad_request, not_acceptable, unsupported_media_type

JSON: Final = "application/json"
YAML: Final = "application/yaml"
_ACCEPTED: Final = (JSON, YAML)
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
    raise not_acceptable(_ACCEPTED)


def _shape(wanted: str) -> Shape | None:
    if not wanted:
        return Shape.OBJECT
    if wanted in {"PartialObjectMetadata", "PartialObjectMetadataList"}:
        return Shape.METADATA
    return Shape(wanted) if wanted in {"Table", "APIGroupDiscoveryList"} else None


def read_body(raw: bytes, content_type: str) -> Any:
    """The data that a body holds; None for an empty one.

    Raises:
        StatusError: 415 for an unknown form, 400 for text that is not in its form.
    """
    if not raw.strip():
        return None
    media = content_type.partition(";")[0].strip().lower() or JSON
    if media not in _BODIES:
        raise unsupported_media_type(media, sorted(_BODIES))
    try:
        if media == protobuf.MEDIA_TYPE:
            return protobuf.read(raw)
        if media in _YAML_TYPES:
            return yaml.load(raw, Loader=yaml.CSafeLoader)
        return orjson.loads(raw)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise bad_request(f"couldn't get object from the body: {reason}") from error
