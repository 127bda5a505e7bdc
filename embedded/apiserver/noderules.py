"""Rules for nodes: what their amounts and taints may be (pure).

Source: ValidateNode and ValidateNodeResources in ``pkg/apis/core/validation/validation.go``.
"""

from __future__ import annotations

from typing import Final

from embedded.apiserver import podrules
from embedded.apiserver.objects import Json, entries, section
from embedded.apiserver.quantities import amount
from embedded.apiserver.status import Cause, invalid_value, not_supported

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def node_causes(node: Json) -> list[Cause]:
    """What is wrong with a node."""
    taints = entries(node, "spec", "taints")
    causes = [
        not_supported(f"metadata.taints[{index}].effect", taint.get("effect", ""), _EFFECTS)
        for index, taint in enumerate(taints)
        if taint.get("effect") not in _EFFECTS
    ]
    return causes + status_causes(node)


def status_causes(node: Json) -> list[Cause]:
    """Extended resources come in whole numbers from 0."""
    causes: list[Cause] = []
    for part in ("capacity", "allocatable"):
        for name, value in section(node, "status", part).items():
            if not podrules.is_extended(name) or str(value).isdecimal():
                continue
            number, field = amount(str(value)), f"status.{part}.{name}"
            if number < 0:
                why = "must be greater than or equal to 0"
                causes.append(invalid_value(field, value, why))
            elif number.denominator != 1:
                causes.append(invalid_value(field, value, "must be an integer"))
    return causes
