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
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Json | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__("", message)
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
            "reason": self.reason,
        }
        details = dict(self.details)
        if self.retry_after_s is not None:
            details["retryAfterSeconds"] = self.retry_after_s
        if details:
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


def no_such_path(path: str) -> StatusError:
    """No resource is served at this path."""
    return StatusError(
        404,
        "NotFound",
        "the server could not find the requested resource",
        details={"causes": [{"reason": "UnexpectedServerResponse", "message": f"404: {path}"}]},
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


def method_not_supported(kind: ResourceKind | None, action: str) -> StatusError:
    """The resource has no such verb."""
    subject = kind.qualified if kind else "the resource"
    return StatusError(
        405,
        "MethodNotAllowed",
        f'{action} is not supported on resources of kind "{subject}"',
        details=_details(kind, "") if kind else {},
    )


def unsupported_media_type(seen: str, accepted: Sequence[str]) -> StatusError:
    """The body is in a form that is not read here."""
    return StatusError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format ({seen or 'no Content-Type'}) - "
        f"accepted media types include: {', '.join(accepted)}",
    )


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    """The client wants a form that is not written here."""
    return StatusError(
        406,
        "NotAcceptable",
        f"only the following media types are accepted: {', '.join(accepted)}",
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
    texts = [
        f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes
    ]
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details: Json = {"name": name, "kind": kind.kind}
    if kind.group:
        details["group"] = kind.group
    details["causes"] = [cause.as_json() for cause in causes]
    subject = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
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
    return shown if len(shown) <= _SHOWN + 2 else f"{shown[:_SHOWN]}…"
