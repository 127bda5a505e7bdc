"""Keys astray: ours, on an object that makes pods, where none of its pods gets them from.

A Deployment's own annotations stay on the Deployment, and so do a CronJob's on the Jobs' template.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from webhook.container import mapping
from webhook.keys import is_status, our_keys

_MOST: Final = 64
"""Templates whose surroundings are looked at."""


def keys_astray(
    workload: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Keys of ours above the pod templates of an object, in order, those of pods left out.

    Args:
        workload: The whole object.
        templates: Its pod templates by their JSON pointers.
    """
    found = {key for pointer in [*templates][:_MOST] for key in _above(workload, pointer)}
    if not found:
        return []
    read = [mapping(mapping(raw, "metadata"), "annotations") for raw in templates.values()]
    return sorted(key for key in found if not any(key in own for own in read))


def _above(workload: Any, pointer: str) -> Iterator[str]:
    """Keys on whatever a template is part of."""
    value = workload
    for token in pointer.split("/")[1:]:
        if isinstance(value, dict):
            annotations = mapping(mapping(value, "metadata"), "annotations")
            yield from (key for key in our_keys(annotations) if not is_status(key))
            value = value.get(token.replace("~1", "/").replace("~0", "~"))
        else:
            value = value[int(token)]
