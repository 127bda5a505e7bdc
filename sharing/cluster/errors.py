"""What an API server answers when it does not do what it was asked.

Built in one place from the server's Status object, so that callers tell cases apart by
class and a person reads what was asked, what the server said and what to do.

    ApiError (an UnavailableError, so exit 1)
    ├── UnreachableError        no answer: no connection, TLS, time-out, no HTTP
    ├── BadRequestError 400     ├── UnauthorizedError 401   ├── ForbiddenError 403
    ├── NotFoundError 404       ├── ConflictError 409       │   └── AlreadyExistsError
    ├── GoneError 410           ├── InvalidError 422        ├── TooManyRequestsError 429
    └── ServerError 5xx
"""

from __future__ import annotations

from typing import Any, Final

from sharing.errors import UnavailableError

_SHOWN_BYTES: Final = 300


class ApiError(UnavailableError):
    """An API server refused a request or did not answer it.

    Args:
        subject: What was asked, such as ``get pods team-a/train``.
        wrong: What the server said.
        expected: What would have been right.
        fix: What to do now.
        example: One spelling that works.
        status: The server's Status object; empty where there is none.
        code: HTTP status code; 0 where there was no answer.
        retry_after_s: Seconds after which the server wants to be asked again.
    """

    hint = ""
    """What to do about this class of error."""

    def __init__(  # noqa: PLR0913 - the parts of GpuSharingError and of an HTTP answer
        self,
        subject: str,
        wrong: str,
        *,
        expected: str = "",
        fix: str = "",
        example: str = "",
        status: dict[str, Any] | None = None,
        code: int = 0,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(subject, wrong, expected=expected, fix=fix or self.hint, example=example)
        self.status = status or {}
        self.code = code
        self.retry_after_s = retry_after_s

    @property
    def reason(self) -> str:
        """The server's machine-readable reason, such as ``AlreadyExists``; may be empty."""
        reason = self.status.get("reason")
        return reason if isinstance(reason, str) else ""

    @property
    def message(self) -> str:
        """The server's own sentence, or what stands for it."""
        message = self.status.get("message")
        return message if isinstance(message, str) and message else self.wrong

    def about(self, subject: str) -> ApiError:
        """The same error told about a wider subject; what the server said stays with it."""
        return type(self)(
            subject,
            f"{self.subject}: {self.wrong}" if self.subject else self.wrong,
            expected=self.expected,
            fix=self.fix,
            example=self.example,
            status=self.status,
            code=self.code,
            retry_after_s=self.retry_after_s,
        )


class UnreachableError(ApiError):
    """There was no answer at all."""

    hint = "check the server's address in the kubeconfig, and that the API server runs"


class BadRequestError(ApiError):
    """The request itself was malformed (400)."""


class UnauthorizedError(ApiError):
    """The credentials are missing, expired or unknown (401)."""

    hint = "log in again, or check the user of this context in the kubeconfig"


class ForbiddenError(ApiError):
    """RBAC, an admission plugin or a quota refused (403)."""


class NotFoundError(ApiError):
    """There is no such object, or no such kind (404)."""


class ConflictError(ApiError):
    """The object changed since it was read (409)."""


class AlreadyExistsError(ConflictError):
    """An object of that name exists (409, reason AlreadyExists)."""


class GoneError(ApiError):
    """The resource version is too old to continue from (410)."""

    hint = "list again and watch from there"


class InvalidError(ApiError):
    """The object breaks the schema or a rule of its kind (422)."""


class TooManyRequestsError(ApiError):
    """The server wants less, or a disruption budget forbids an eviction now (429)."""


class ServerError(ApiError):
    """The server failed (5xx)."""


_CLASSES: Final[dict[int, type[ApiError]]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}
_SERVER_FAULT: Final = 500


def error_of(
    subject: str,
    code: int,
    status: dict[str, Any] | None,
    *,
    body: bytes = b"",
    retry_after_s: float | None = None,
) -> ApiError:
    """The error that stands for an answer.

    Args:
        subject: What was asked.
        code: HTTP status code, or the Status object's code inside a watch.
        status: The decoded Status object, or None where the body was something else.
        body: The raw body, shown shortened where there is no Status.
        retry_after_s: From the Retry-After header or the Status' details, seconds.
    """
    cls = _CLASSES.get(code, ServerError if code >= _SERVER_FAULT else ApiError)
    message = (status or {}).get("message")
    if isinstance(message, str) and message:
        wrong = message
    else:
        text = body[:_SHOWN_BYTES].decode("utf-8", "replace").strip()
        wrong = f"the server answered {code}" + (f": {text}" if text else "")
    reason = (status or {}).get("reason")
    if cls is ConflictError and reason == "AlreadyExists":
        cls = AlreadyExistsError
    # "Expired" is what a list with an old continue token is refused with.
    if reason in {"Expired", "Gone"}:
        cls = GoneError
    return cls(subject, wrong, status=status, code=code, retry_after_s=retry_after_s)
