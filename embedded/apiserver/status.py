"""Every refusal as the Status object that a Kubernetes client expects.

The texts are those of apimachinery's ``pkg/api/errors`` and ``pkg/util/validation/field``,
because programs and people search for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from embedded.errors import EmbeddedError

if TYPE_CHECKING:
    from embedded.apiserver.kinds import ResourceKind
    from embedded.apiserver.objects import Json

_SHOWN: Final = 500  # characters of a value in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One field that is wrong (an entry of ``details.causes``)."""

    field: str
    reason: str
    message: str

    def as_json(self) -> Json:
        """The wire form."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


class StatusError(EmbeddedError):
    """An answer that is not a success: code, reason, message, details.

    Args:
        code: The HTTP status code.
        reason: The machine-readable word (``metav1.StatusReason``).
        message: The sentence for people.
        details: ``status.details``.
        retry_after_s: Sent as the ``Retry-After`` header where given.
        bare: Made from the HTTP status alone, upstream's NewGenericServerResponse, whose details
            are there though empty.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Json | None = None,
        retry_after_s: int | None = None,
        bare: bool = False,
    ) -> None:
        super().__init__("", message)
        self.bare = bare
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.retry_after_s = retry_after_s

    def as_json(self) -> Json:
        """The Status object."""
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        details = dict(self.details)
        if self.retry_after_s is not None:
            details["retryAfterSeconds"] = self.retry_after_s
        if details or self.bare:
            status["details"] = details
        status["code"] = self.code
        return status


def success(details: Json | None = None, code: int | None = None) -> Json:
    """The Status object of a request that needs no other answer."""
    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        status["details"] = details
    if code is not None:
        status["code"] = code
    return status


def _details(kind: ResourceKind, name: str, **more: Any) -> Json:
    details: Json = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    return {**details, "kind": kind.plural, **more}


def not_found(kind: ResourceKind, name: str) -> StatusError:
    """No object of this name."""
    return StatusError(
        404,
        "NotFound",
        f'{kind.qualified} "{name}" not found',
        details=_details(kind, name),
    )


def no_such_path() -> StatusError:
    """No resource is served at this path."""
    return StatusError(
        404, "NotFound", "the server could not find the requested resource", bare=True
    )


def unrecognized(kind_name: str, why: str) -> StatusError:
    """A body that is no object at all; upstream quotes Go's parser."""
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind_name}): "
        f"couldn't get version/kind; json parse error: {why}"
    )


def unprocessable() -> StatusError:
    """A patch that does not fit its object."""
    return StatusError(
        422, "Invalid", "the server rejected our request due to an error in our request", bare=True
    )


def already_exists(kind: ResourceKind, name: str) -> StatusError:
    """The name is taken."""
    return StatusError(
        409,
        "AlreadyExists",
        f'{kind.qualified} "{name}" already exists',
        details=_details(kind, name),
    )


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(kind: ResourceKind, name: str, why: str = MODIFIED) -> StatusError:
    """The object is not in the state that the request needs."""
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}',
        details=_details(kind, name),
    )


def forbidden(kind: ResourceKind, name: str, why: str, causes: Sequence[Json] = ()) -> StatusError:
    """Understood and refused."""
    more = {"causes": list(causes)} if causes else {}
    shown = f'{kind.qualified} "{name}"' if name else kind.qualified
    return StatusError(
        403, "Forbidden", f"{shown} is forbidden: {why}", details=_details(kind, name, **more)
    )


def bad_request(message: str) -> StatusError:
    """The request itself is malformed."""
    return StatusError(400, "BadRequest", message)


def method_not_supported() -> StatusError:
    """The resource has no such verb."""
    return StatusError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        bare=True,
    )


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    """The body is in a form that is not read here."""
    return StatusError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        f"{', '.join(accepted)}",
    )


def unsupported_patch_type() -> StatusError:
    """No kind takes a patch in this form."""
    return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", bare=True)


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    """The client wants a form that is not written here."""
    return StatusError(
        406,
        "NotAcceptable",
        f"406: Not Acceptable\n\nAvailable representations: {', '.join(accepted)}",
        bare=True,
    )


def too_large(limit_bytes: int) -> StatusError:
    """The body is beyond the limit."""
    return StatusError(
        413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit_bytes}"
    )


def gone(message: str) -> StatusError:
    """The wanted history is no longer kept."""
    return StatusError(410, "Expired", message)


def unauthorized() -> StatusError:
    """A credential was presented and is not known."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def too_many_requests(
    message: str, causes: Sequence[Json] = (), retry_after_s: int = 0
) -> StatusError:
    """Refused for now."""
    return StatusError(
        429,
        "TooManyRequests",
        message,
        details={"causes": list(causes)} if causes else {},
        retry_after_s=retry_after_s or None,
    )


def internal(message: str) -> StatusError:
    """Something behind this server failed."""
    return StatusError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        details={"causes": [{"message": message}]},
    )


def invalid(kind: ResourceKind, name: str, causes: Sequence[Cause]) -> StatusError:
    """The object breaks rules of its kind; every broken rule is named."""
    return _invalid(kind.kind, kind.group, name, causes)


def invalid_options(options: str, *causes: Cause) -> StatusError:
    """The query says what cannot be.

    Args:
        options: Such as ``CreateOptions``.
        causes: Every parameter that is wrong.
    """
    return _invalid(options, "meta.k8s.io", "", causes)


def invalid_patch(value: Any, why: str) -> StatusError:
    """What a patch makes is no object of the kind."""
    return _invalid("", "", "", [invalid_value("patch", orjson.dumps(value).decode(), why)])


def _invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> StatusError:
    texts = [
        f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes
    ]
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    known = {"name": name, "group": group, "kind": kind}
    details: Json = {key: value for key, value in known.items() if value}
    details["causes"] = [cause.as_json() for cause in causes]
    subject = f"{kind}.{group}" if group else kind
    return StatusError(422, "Invalid", f'{subject} "{name}" is invalid: {joined}', details=details)


def required(field: str, why: str = "") -> Cause:
    """A field that must be there is not."""
    return Cause(
        field=field,
        reason="FieldValueRequired",
        message=f"Required value: {why}" if why else "Required value",
    )


def invalid_value(field: str, value: Any, why: str) -> Cause:
    """A field holds something that it must not hold."""
    return Cause(
        field=field, reason="FieldValueInvalid", message=f"Invalid value: {_go(value)}: {why}"
    )


def duplicate(field: str, value: Any) -> Cause:
    """Two entries where one may stand."""
    return Cause(
        field=field, reason="FieldValueDuplicate", message=f"Duplicate value: {_go(value)}"
    )


def not_supported(field: str, value: Any, choices: Sequence[str]) -> Cause:
    """A closed set does not hold this value."""
    listed = ", ".join(f'"{choice}"' for choice in choices)
    return Cause(
        field=field,
        reason="FieldValueNotSupported",
        message=f"Unsupported value: {_go(value)}: supported values: {listed}",
    )


def field_forbidden(field: str, why: str) -> Cause:
    """The field may not be set here."""
    return Cause(field=field, reason="FieldValueForbidden", message=f"Forbidden: {why}")


def _go(value: Any) -> str:
    """A value the way Go's field errors print it."""
    if value is None:
        return "null"
    plain = isinstance(value, (dict, list, bool, int, float))
    shown = orjson.dumps(value if plain else str(value)[:_SHOWN]).decode()
    return shown if len(shown) <= _SHOWN + 2 else f"{shown[:_SHOWN]}…{'' if plain else chr(34)}"
