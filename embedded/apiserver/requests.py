"""One request to the resource API, taken apart and checked (pure)."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from embedded.apiserver.calls import FIELD_VALIDATIONS, REQUEST_TIMEOUT_S, Call, User
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.negotiation import Answer, UnreadableError, read_body
from embedded.apiserver.paths import ResourcePath
from embedded.apiserver.selectors import parse_fields, parse_labels
from embedded.apiserver.status import (
    Cause,
    StatusError,
    bad_request,
    gone,
    invalid_options,
    not_supported,
    unrecognized,
)
from embedded.apiserver.watching import Wanted, WatchOptions

_FALSE: Final = frozenset({"", "false", "0"})
"""All else is true. Source: apimachinery, ``Convert_Slice_string_To_bool``."""
_OPTIONS: Final = {"PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
_LONGEST_MANAGER: Final = 128
_WATCH_TIMEOUT_S: Final = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request.

    Attributes:
        query: The first value of each query parameter.
        raw: The body as it came.
        content_type: Of the body.
        answer: The form that the client takes.
        call: Collects what the answer needs.
    """

    method: str
    path: ResourcePath
    kind: ResourceKind
    query: Mapping[str, str]
    raw: bytes
    content_type: str
    answer: Answer
    call: Call

    @property
    def namespace(self) -> str:
        """The namespace of the path; empty for cluster-scoped kinds and for all namespaces."""
        return self.path.namespace if self.kind.namespaced else ""

    def body(self) -> Any:
        """The decoded body.

        Raises:
            StatusError: 400 or 415.
        """
        try:
            return read_body(self.raw, self.content_type)
        except UnreadableError as error:
            raise self._unreadable(error.why) from error

    def _unreadable(self, why: str) -> StatusError:
        """A body that is not in its form, in the words of whoever reads it upstream."""
        media = self.content_type.partition(";")[0].strip().lower()
        if self.method != "PATCH":
            return unrecognized(self.kind.kind, why)
        if media.endswith("+yaml"):
            return bad_request(f"error encoding patch: yaml: {why}")
        return bad_request("invalid JSON patch")

    def flag(self, name: str) -> bool:
        """A boolean of the query."""
        return self.query.get(name, "") not in _FALSE

    def number(self, name: str) -> int | None:
        """A whole number of the query, None where absent.

        Raises:
            StatusError: 400.
        """
        text = self.query.get(name, "")
        if not text:
            return None
        if not re.fullmatch(r"-?\d{1,18}", text):
            raise bad_request(f'strconv.ParseInt: parsing "{text[:40]}": invalid syntax')
        return max(int(text), 0)

    def revision(self) -> int | None:
        """The ``resourceVersion`` of the query, None where absent.

        Raises:
            StatusError: 400 for a list, 500 for a watch, as upstream.
        """
        text = self.query.get("resourceVersion", "")
        if not text or re.fullmatch(r"\d{1,18}", text):
            return int(text) if text else None
        wrong = (
            f'resourceVersion: Invalid value: "{text[:40]}": '
            f'strconv.ParseUint: parsing "{text[:40]}": invalid syntax'
        )
        if self.flag("watch"):
            raise StatusError(500, "", wrong)
        raise bad_request(f"invalid resource version: {wrong}")

    def wanted(self) -> Wanted:
        """What a list, watch or collection deletion is about.

        Raises:
            StatusError: 400, a selector is malformed.
        """
        fields = self.query.get("fieldSelector", "")
        if self.path.name:
            fields = ",".join(filter(None, (fields, f"metadata.name={self.path.name}")))
        return Wanted(
            namespace=self.namespace,
            labels=parse_labels(self.query.get("labelSelector", "")),
            fields=parse_fields(fields, self.kind.qualified, self.kind.selectable),
        )

    def watch_options(self) -> WatchOptions:
        """How the client watches.

        Raises:
            StatusError: 400.
        """
        revision = self.revision()
        initial = self.query.get("sendInitialEvents")
        if initial is not None and not self.query.get("resourceVersionMatch"):
            raise invalid_options(
                "ListOptions",
                Cause(
                    field="resourceVersionMatch",
                    reason="FieldValueForbidden",
                    message="Forbidden: sendInitialEvents requires setting resourceVersionMatch "
                    "to NotOlderThan",
                ),
            )
        start = revision if revision and not self.flag("sendInitialEvents") else None
        if initial is not None and not self.flag("sendInitialEvents") and start is None:
            start = revision
        return WatchOptions(
            since=start,
            bookmarks=self.flag("allowWatchBookmarks"),
            announce_initial=self.flag("sendInitialEvents") and self.flag("allowWatchBookmarks"),
            timeout_s=float(self.number("timeoutSeconds") or _WATCH_TIMEOUT_S),
        )


def call_of(method: str, query: Mapping[str, str], user: User, user_agent: str) -> Call:
    """Options of a call that come in its query.

    Raises:
        StatusError: 422.
    """
    deadline_s = time.monotonic() + _timeout_s(query.get("timeout", ""))
    if method in {"GET", "HEAD"}:
        return Call(user=user, deadline_s=deadline_s)
    options = _OPTIONS.get(method, "CreateOptions")
    dry_run = query.get("dryRun", "")
    if dry_run not in {"", "All"}:
        raise invalid_options(options, not_supported("dryRun", [dry_run], ["All"]))
    validation = query.get("fieldValidation") or "Warn"
    if validation not in FIELD_VALIDATIONS:
        choices = ("", *sorted(FIELD_VALIDATIONS))
        raise invalid_options(options, not_supported("fieldValidation", validation, choices))
    manager = query.get("fieldManager") or user_agent.partition("/")[0] or "unknown"
    if len(manager) > _LONGEST_MANAGER or not manager.isprintable():
        why = f"Too long: may not be more than {_LONGEST_MANAGER} bytes"
        raise invalid_options(
            options, Cause(field="fieldManager", reason="FieldValueTooLong", message=why)
        )
    return Call(
        user=user,
        dry_run=dry_run == "All",
        manager=manager,
        force=query.get("force", "") not in _FALSE,
        field_validation=validation,
        deadline_s=deadline_s,
    )


def _timeout_s(text: str) -> float:
    found = re.fullmatch(r"(\d{1,4})(ms|s|m)?", text)
    if not found:
        return REQUEST_TIMEOUT_S
    scale = {"ms": 0.001, "m": 60.0}.get(found[2] or "s", 1.0)
    return min(int(found[1]) * scale or REQUEST_TIMEOUT_S, REQUEST_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Continue:
    """Where a chunked list goes on: a snapshot and an offset in it."""

    snapshot: int
    offset: int

    def token(self) -> str:
        """The opaque text that the client sends back."""
        raw = orjson.dumps({"v": "meta.k8s.io/v1", "rv": self.snapshot, "start": self.offset})
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def parse_continue(text: str) -> Continue:
    """The position that a client sends back.

    Raises:
        StatusError: 400, the token is not ours.
    """
    try:
        fields = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return Continue(snapshot=int(fields["rv"]), offset=int(fields["start"]))
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request("invalid continue token: continue key is not valid") from error


def expired_continue() -> Exception:
    """The snapshot of a chunked list is gone."""
    return gone(
        "The provided continue parameter is too old to display a consistent list result. "
        "You can start a new list without the continue parameter."
    )
