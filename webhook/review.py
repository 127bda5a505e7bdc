"""Reviews: what the API server asks, read from hostile JSON.

The object stays raw: it is never decoded into a model and written back, so fields that we do not
know survive (gardener#6818).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from sharing.errors import InputError, shown

_API_VERSION: Final = "admission.k8s.io/v1"
_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})


class MalformedReviewError(InputError):
    """A body that is no AdmissionReview of version v1; answer HTTP 400.

    Attributes:
        uid: The request's uid where it could be read, else empty.
    """

    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """One question of the API server."""

    uid: str
    operation: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    kind: str
    """The object's kind: ``Pod``, ``Deployment``."""
    group: str = ""
    """The object's API group; empty for core."""
    resource: str = ""
    """Plural, as in URLs: ``pods``."""
    subresource: str = ""
    namespace: str = ""
    """The request's, the one to trust (TF PR#155)."""
    name: str = ""
    """Empty at CREATE with generateName."""
    user: str = ""
    groups: tuple[str, ...] = ()
    dry_run: bool = False
    object: dict[str, Any] | None = field(default=None, hash=False)
    """None on DELETE."""
    old_object: dict[str, Any] | None = field(default=None, hash=False)


def parse_review(body: object) -> Review:
    """The review that a decoded body holds.

    Raises:
        MalformedReviewError: It holds none.
    """
    if not isinstance(body, dict):
        raise _malformed("", f"{shown(type(body).__name__)} is no JSON object")
    request = body.get("request")
    uid = request.get("uid") if isinstance(request, dict) else None
    known_uid = uid if isinstance(uid, str) else ""
    if body.get("kind") != "AdmissionReview" or body.get("apiVersion") != _API_VERSION:
        said = f"{shown(body.get('apiVersion'))}, kind {shown(body.get('kind'))}"
        raise _malformed(known_uid, f"apiVersion {said} is not what this server speaks")
    if not isinstance(request, dict):
        raise _malformed("", "it holds no request")
    if not known_uid:
        raise _malformed("", f"request.uid is {shown(uid)}")
    return _read(request, known_uid)


def _read(request: dict[str, Any], uid: str) -> Review:
    operation = request.get("operation")
    if not isinstance(operation, str) or operation not in _OPERATIONS:
        raise _malformed(uid, f"request.operation is {shown(operation)}")
    kind = _object(request, "kind", uid) or {}
    resource = _object(request, "resource", uid) or {}
    user = _object(request, "userInfo", uid) or {}
    groups = user.get("groups")
    return Review(
        uid=uid,
        operation=operation,
        kind=_text(kind, "kind", uid),
        group=_text(kind, "group", uid),
        resource=_text(resource, "resource", uid),
        subresource=_text(request, "subResource", uid),
        namespace=_text(request, "namespace", uid),
        name=_text(request, "name", uid),
        user=_text(user, "username", uid),
        groups=tuple(g for g in groups if isinstance(g, str)) if isinstance(groups, list) else (),
        dry_run=request.get("dryRun") is True,
        object=_object(request, "object", uid),
        old_object=_object(request, "oldObject", uid),
    )


def _object(request: dict[str, Any], key: str, uid: str) -> dict[str, Any] | None:
    value = request.get(key)
    if value is None or isinstance(value, dict):
        return value
    raise _malformed(uid, f"request.{key} is {shown(value)}, no object")


def _text(holder: dict[str, Any], key: str, uid: str) -> str:
    value = holder.get(key)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise _malformed(uid, f"{key} is {shown(value)}, no text")


def _malformed(uid: str, wrong: str) -> MalformedReviewError:
    error = MalformedReviewError(
        "AdmissionReview",
        wrong,
        expected=f"an AdmissionReview of {_API_VERSION} with a request",
        fix='set admissionReviewVersions: ["v1"] in the webhook configuration',
    )
    error.uid = uid
    return error
