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
    (("spec", "nodeSelector"), dict),
    (("spec", "tolerations"), list),
    (("spec", "affinity"), dict),
    (("spec", "affinity", "nodeAffinity"), dict),
    (("spec", "affinity", "nodeAffinity", _REQUIRED), dict),
    (("spec", "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms"), list),
    (("spec", "volumes"), list),
)
_CONTAINER: Final[tuple[tuple[tuple[str, ...], type], ...]] = (
    (("resources",), dict),
    (("resources", "limits"), dict),
    (("resources", "requests"), dict),
    (("env",), list),
    (("volumeMounts",), list),
    (("securityContext",), dict),
)


def check_shape(pod: Mapping[str, Any], containers: Iterable[Container]) -> None:
    """Refuse a pod that holds texts where maps or lists belong.

    Raises:
        RequestError: It does; the field is named.
    """
    for path, kind in _POD:
        _check(pod, path, kind, "")
    for container in containers:
        for path, kind in _CONTAINER:
            _check(container.raw, path, kind, container.field + ".")


def _check(holder: Mapping[str, Any], path: tuple[str, ...], kind: type, prefix: str) -> None:
    value: Any = holder
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
        if value is None:
            return
    if not isinstance(value, kind):
        word = "a mapping" if kind is dict else "a list"
        raise RequestError(
            prefix + ".".join(path),
            f"{shown(value)} is not {word}",
            expected=word,
            fix="correct the manifest",
            example=f"{path[-1]}: {'{}' if kind is dict else '[]'}",
        )
