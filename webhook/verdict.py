"""Verdicts: what becomes of a review, and how the API server is told."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import orjson

from webhook.grant import Grant
from webhook.patch import PatchOperation

_MOST_WARNINGS: Final = 128
"""API servers tell 4096 characters of them in all. Source: kubernetes/apiserver, warning.go."""


class VerdictKind(StrEnum):
    """What becomes of the object."""

    ALLOW = "allow"
    PATCH = "patch"
    DENY = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer to one review; log line, metric, warning and answer all come from this value."""

    code: int = 200
    """200 when allowed; 403 where policy forbids, 422 where the request is malformed."""
    reason: str = ""
    """One CamelCase word for machines, such as ``Forbidden``; empty when allowed."""
    message: str = ""
    """For the person whose object it is: what, where, why, what to do."""
    summary: str = ""
    """What is wrong, without where and what to do: for places with room for a line."""
    warnings: tuple[str, ...] = ()
    """Shown to the client; each below 120 characters."""
    grants: tuple[Grant, ...] = ()
    """In order of the pod's containers. For a workload and under ``enforcement: warn`` or
    ``audit``: what its pods would get."""
    operations: tuple[PatchOperation, ...] = ()
    audit_annotations: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def allowed(self) -> bool:
        """Whether the object may pass."""
        return self.code < 400  # noqa: PLR2004  HTTP's own border

    @property
    def kind(self) -> VerdictKind:
        """Allow, patch or deny; patch exactly where there are operations."""
        if not self.allowed:
            return VerdictKind.DENY
        return VerdictKind.PATCH if self.operations else VerdictKind.ALLOW


ALLOWED = Verdict()
"""Nothing to say, nothing to change."""


def render(verdict: Verdict, uid: str) -> dict[str, Any]:
    """The AdmissionReview that answers the API server.

    Source: Kubernetes API reference, ``admission.k8s.io/v1`` AdmissionResponse; patch and
    patchType come both or neither.
    """
    response: dict[str, Any] = {"uid": uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        response["status"] = {
            "status": "Failure",
            "code": verdict.code,
            "reason": verdict.reason,
            "message": verdict.message,
        }
    elif verdict.operations:
        operations = [operation.to_json() for operation in verdict.operations]
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(operations)).decode()
    if verdict.warnings:
        response["warnings"] = list(verdict.warnings[:_MOST_WARNINGS])
    if verdict.audit_annotations:
        response["auditAnnotations"] = dict(verdict.audit_annotations)
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
