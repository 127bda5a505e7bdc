"""AdmissionReview: what a webhook is asked and how its answer is read (pure).

Rules: k8s.io/apiserver ``pkg/admission/plugin/webhook/request`` and ``.../errors``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from embedded.apiserver.admission.attributes import Attributes
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json, section
from embedded.apiserver.status import StatusError

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
_FIRST_FAILURE: Final = 400


class BadReviewError(Exception):
    """A webhook's answer breaks the contract: a calling error, subject to failurePolicy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A webhook's answer.

    Attributes:
        patch: Operations of a JSON patch; empty for no change.
        status: ``response.status`` of a refusal.
    """

    allowed: bool
    patch: tuple[Json, ...] = ()
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: Json = field(default_factory=dict)


def request_fields(attributes: Attributes, matched: ResourceKind | None = None) -> Json:
    """``request`` without objects and uid: what webhooks and CEL conditions see.

    Args:
        attributes: The request.
        matched: The equivalent resource that the rules matched; None for the request's own.
    """
    own = attributes.kind
    shown = matched or own
    group, version, kind = attributes.object_kind
    if matched is not None and attributes.body_kind is None:
        group, version, kind = matched.group, matched.version, matched.kind
    fields: Json = {
        "kind": _gvk(group, version, kind),
        "resource": {"group": shown.group, "version": shown.version, "resource": shown.plural},
        "requestKind": _gvk(*attributes.object_kind),
        "requestResource": {"group": own.group, "version": own.version, "resource": own.plural},
    }
    if attributes.subresource:
        fields["subResource"] = fields["requestSubResource"] = attributes.subresource
    if attributes.name:
        fields["name"] = attributes.name
    # Requests about a namespace carry its name as their namespace.
    namespace = attributes.name if own.qualified == "namespaces" else attributes.namespace
    if namespace:
        fields["namespace"] = namespace
    fields |= {
        "operation": attributes.operation.value,
        "userInfo": attributes.call.user.as_json(),
        "dryRun": attributes.call.dry_run,
        "options": attributes.options.as_json(),
    }
    return fields


def _gvk(group: str, version: str, kind: str) -> Json:
    return {"group": group, "version": version, "kind": kind}


def review(attributes: Attributes, uid: str, matched: ResourceKind | None = None) -> Json:
    """The whole AdmissionReview."""
    fields = request_fields(attributes, matched)
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "request": {
            "uid": uid,
            **fields,
            "object": _converted(attributes.obj, matched),
            "oldObject": _converted(attributes.old, matched),
        },
    }


def _converted(obj: Json | None, matched: ResourceKind | None) -> Json | None:
    return {**obj, "apiVersion": matched.api_version} if obj and matched else obj


def read_answer(raw: bytes, uid: str, *, mutating: bool) -> Verdict:
    """The verdict that an HTTP 200 body holds.

    Raises:
        BadReviewError: It breaks the contract.
    """
    try:
        body = orjson.loads(raw)
    except ValueError as error:
        raise BadReviewError(f"couldn't get version/kind; json parse error: {error}") from error
    if not isinstance(body, dict):
        raise BadReviewError("couldn't get version/kind; json parse error: not an object")
    response = body.get("response")
    if not isinstance(response, dict):
        raise BadReviewError("webhook response was absent")
    if response.get("uid") != uid:
        raise BadReviewError(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    if (body.get("apiVersion"), body.get("kind")) != (API_VERSION, KIND):
        raise BadReviewError(
            f"expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got "
            f"{body.get('apiVersion') or ''}, Kind={body.get('kind') or ''}"
        )
    return Verdict(
        allowed=response.get("allowed") is True,
        patch=_patch(response, mutating=mutating),
        warnings=tuple(str(text) for text in response.get("warnings") or ()),
        annotations={str(k): str(v) for k, v in (response.get("auditAnnotations") or {}).items()},
        status=section(response, "status"),
    )


def _patch(response: Json, *, mutating: bool) -> tuple[Json, ...]:
    encoded, kind = response.get("patch"), response.get("patchType")
    if not mutating:
        if encoded:
            raise BadReviewError("validating webhook may not return response.patch")
        if kind is not None:
            raise BadReviewError("validating webhook may not return response.patchType")
        return ()
    if encoded and kind is None:
        raise BadReviewError("webhook returned response.patch but not response.patchType")
    if not encoded and kind is not None:
        raise BadReviewError("webhook returned response.patchType but not response.patch")
    if not encoded:
        return ()
    if kind != "JSONPatch":
        raise BadReviewError(f'unsupported patch type "{kind}"')
    try:
        operations = orjson.loads(base64.b64decode(str(encoded), validate=True))
    except (binascii.Error, ValueError) as error:
        raise BadReviewError(f"response.patch cannot be decoded: {error}") from error
    if not isinstance(operations, list) or not all(isinstance(op, dict) for op in operations):
        raise BadReviewError("response.patch is not a list of operations")
    return tuple(operations)


def denial(webhook: str, status: Json) -> StatusError:
    """What the client is told when a webhook refuses (ToStatusErr)."""
    denied_by = f'admission webhook "{webhook}" denied the request'
    code: Any = status.get("code")
    if not isinstance(code, int) or isinstance(code, bool) or code < _FIRST_FAILURE:
        code = _FIRST_FAILURE
    message, reason = str(status.get("message") or ""), str(status.get("reason") or "")
    if message or reason:
        text = f"{denied_by}: {message or reason}"
    else:
        text = f"{denied_by} without explanation"
    details = status.get("details")
    return StatusError(
        code if code <= 599 else 500,  # noqa: PLR2004 - the last HTTP status
        reason,
        text,
        details=details if isinstance(details, dict) else None,
    )
