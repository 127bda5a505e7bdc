"""Taints and tolerations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

HARD_EFFECTS: Final = ("NoSchedule", "NoExecute")
SOFT_EFFECT: Final = "PreferNoSchedule"


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether one toleration bears one taint.

    An empty effect bears all effects; Exists without a key bears everything.
    """
    effect = toleration.get("effect")
    if effect and effect != taint.get("effect"):
        return False
    key = toleration.get("key")
    if key and key != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def untolerated(
    taints: Iterable[Mapping[str, Any]],
    tolerations: Iterable[Mapping[str, Any]],
    effects: Collection[str],
) -> list[Mapping[str, Any]]:
    """The taints with one of these effects that no toleration bears, in the node's order."""
    borne = list(tolerations)
    return [
        taint
        for taint in taints
        if taint.get("effect") in effects and not any(tolerates(one, taint) for one in borne)
    ]
