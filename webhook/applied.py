"""The file that a person applied last, as kubectl keeps it on the object.

A three-way merge changes nothing about an amount that the object already has. So when a file's
``nvidia.com/gpu: 250m`` becomes ``1``, which is what we had written in place of the fraction, the
object does not show it; the file does.

Source: Kubernetes documentation, "Declarative Management of Kubernetes Objects Using
Configuration Files", how apply calculates differences.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from sharing.errors import InputError
from sharing.names import FRACTION, GPU, PREFIX
from webhook.container import containers_of, mapping
from webhook.resources import amount_of

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class Applied(NamedTuple):
    """A file as it was applied."""

    digest: str = ""
    """Tells files apart; empty where none was applied."""
    value: Any = None
    """Its content; None where it is the one that was known already."""

    def whole_in(self, path: str) -> frozenset[str]:
        """Containers for which the file asks for whole GPUs, and for no fraction.

        Args:
            path: JSON pointer to their pod template.
        """
        template = self._at(path)
        annotations = mapping(mapping(template, "metadata"), "annotations")
        if f"{PREFIX}/{FRACTION}" in annotations:
            return frozenset()
        return frozenset(
            container.name
            for container in containers_of(template)
            if f"{container.name}.{PREFIX}/{FRACTION}" not in annotations
            and _asks_for_whole(mapping(container.raw, "resources"))
        )

    def _at(self, path: str) -> dict[str, Any]:
        value = self.value
        for token in path.split("/")[1:]:
            key = token.replace("~1", "/").replace("~0", "~")
            if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            else:
                value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, dict) else {}


def applied_to(annotations: Mapping[str, Any], known: str) -> Applied:
    """The file that was applied to an object with these annotations.

    Args:
        annotations: The object's.
        known: Digest of a file that need not be read.
    """
    text = annotations.get(LAST_APPLIED)
    if not isinstance(text, str) or not text:
        return Applied()
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
    if digest == known:
        return Applied(digest)
    try:
        return Applied(digest, orjson.loads(text))
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        return Applied(digest)


def _asks_for_whole(resources: Mapping[str, Any]) -> bool:
    amounts = [part[GPU] for part in resources.values() if isinstance(part, dict) and GPU in part]
    return bool(amounts) and all(map(_is_whole, amounts))


def _is_whole(value: object) -> bool:
    try:
        return amount_of(value) >= 1
    except InputError:
        return False
