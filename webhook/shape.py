"""The shape of what we write into: a pod that is no pod is refused, never repaired by accident.

The API server decodes pods before it asks us, so these can only come from files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sharing.errors import shown
from webhook.container import Container
from webhook.errors import RequestError

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_POD: Final[tuple[tuple[tuple[str, ...], type], ...]] = (
    (("metadata",), dict),
    (("metadata", "annotations"), dict),
    (("spec",), dict),
    (("spec", "nodeSelector"), dict),
    (("spec", "tolerations"), list),
    (("spec", "affinity"), dict),
    (("spec", "affinity", "nodeAffinity"), dict),
    (("spec", "affinity", "nodeAffinity", _REQUIRED), dict),
    (("spec", "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms"), list),
    (("spec", "volumes"), list),
)
_CONTAINER: Final[tuple[tuple[str, type], ...]] = (
    ("env", list),
    ("volumeMounts", list),
    ("securityContext", dict),
)
_RESOURCES: Final = ("limits", "requests")


def check_shape(pod: Mapping[str, Any], containers: Iterable[Container]) -> None:
    """Refuse a pod that holds texts where maps or lists belong.

    Raises:
        RequestError: It does; the field is named.
    """
    for path, kind in _POD:
        value: Any = pod
        for key in path:
            value = value.get(key)
            if value is None:
                break
        else:
            if not isinstance(value, kind):
                raise _error(".".join(path), value, kind)
    for container in containers:
        raw = container.raw
        for key, kind in _CONTAINER:
            _check(raw.get(key), kind, container, key)
        resources = raw.get("resources")
        _check(resources, dict, container, "resources")
        if resources:
            for key in _RESOURCES:
                _check(resources.get(key), dict, container, f"resources.{key}")


def _check(value: object, kind: type, container: Container, field: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise _error(f"{container.field}.{field}", value, kind)


def _error(field: str, value: object, kind: type) -> RequestError:
    word = "a mapping" if kind is dict else "a list"
    return RequestError(
        field,
        f"{shown(value)} is not {word}",
        expected=word,
        fix="correct the manifest",
        example=f"{field.rpartition('.')[2]}: {'{}' if kind is dict else '[]'}",
    )
