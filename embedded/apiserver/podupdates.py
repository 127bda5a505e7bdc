"""What may change in a pod that exists: almost nothing (pure).

Source: ValidatePodUpdate in ``pkg/apis/core/validation/validation.go``.
"""

from __future__ import annotations

from typing import Final

from embedded.apiserver.objects import Json, deep_copy, entries, section
from embedded.apiserver.podrules import spec_causes
from embedded.apiserver.status import Cause, field_forbidden

_UPDATE_TEXT: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)


def pod_update_causes(new: Json, old: Json) -> list[Cause]:
    """ValidatePodUpdate: nearly all of the spec is for ever."""
    after, before = section(new, "spec"), section(old, "spec")
    if len(entries(after, "containers")) != len(entries(before, "containers")):
        return [field_forbidden("spec.containers", "pod updates may not add or remove containers")]
    if len(entries(after, "initContainers")) != len(entries(before, "initContainers")):
        return [
            field_forbidden("spec.initContainers", "pod updates may not add or remove containers")
        ]
    causes = [] if spec_causes(before, "spec") else spec_causes(after, "spec")
    causes += _toleration_causes(after, before)
    if _fixed_part(after, before) != before:
        causes.append(field_forbidden("spec", _UPDATE_TEXT))
    return causes


def _fixed_part(after: Json, before: Json) -> Json:
    """The new spec with every field that may change put back."""
    fixed: Json = deep_copy(after)
    for group in ("containers", "initContainers"):
        for container, old in zip(entries(fixed, group), entries(before, group), strict=True):
            container["image"] = old.get("image")
    for key in ("activeDeadlineSeconds", "tolerations"):
        _put_back(fixed, before, key)
    if before.get("schedulingGates"):
        # Gates may be removed, never added; while they stand, node constraints may tighten.
        for key in ("schedulingGates", "nodeSelector", "affinity"):
            _put_back(fixed, before, key)
    return fixed


def _put_back(fixed: Json, before: Json, key: str) -> None:
    if key in before:
        fixed[key] = before[key]
    else:
        fixed.pop(key, None)


def _toleration_causes(after: Json, before: Json) -> list[Cause]:
    kept = entries(after, "tolerations")
    gates = {str(gate.get("name")) for gate in entries(before, "schedulingGates")}
    causes = [
        field_forbidden("spec.schedulingGates", "only deletion is allowed")
        for gate in entries(after, "schedulingGates")
        if gate.get("name") not in gates
    ]
    if any(toleration not in kept for toleration in entries(before, "tolerations")):
        causes.append(
            field_forbidden(
                "spec.tolerations",
                "existing toleration can not be modified except its tolerationSeconds",
            )
        )
    return causes
