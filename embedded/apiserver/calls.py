"""Who calls, with which options, and what the call collects for its answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from embedded.apiserver.objects import Json

REQUEST_TIMEOUT_S: Final = 34.0
FIELD_VALIDATIONS: Final = ("Ignore", "Warn", "Strict")


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """The identity of a caller (authentication.k8s.io UserInfo)."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def as_json(self) -> Json:
        """UserInfo as reviews carry it."""
        info: Json = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            info["uid"] = self.uid
        if self.extra:
            info["extra"] = {key: list(values) for key, values in self.extra.items()}
        return info


ADMIN: Final = User(name="kubernetes-admin", groups=("system:masters", "system:authenticated"))
SYSTEM: Final = User(name="system:apiserver", groups=("system:masters", "system:authenticated"))


@dataclass(slots=True, kw_only=True)
class Call:
    """One request as the registry sees it.

    Attributes:
        dry_run: Everything happens but the write.
        manager: The field manager (``fieldManager``, else from the User-Agent).
        force: Server-side apply takes over fields of other managers.
        field_validation: What unknown fields do: Ignore, Warn or Strict.
        warnings: Sent to the client as Warning headers.
        annotations: Recorded with the audit event.
        deadline_s: When the whole request must be over (admission included), by the
            monotonic clock, seconds.
    """

    user: User = ADMIN
    dry_run: bool = False
    manager: str = "unknown"
    force: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    deadline_s: float = field(default_factory=lambda: time.monotonic() + REQUEST_TIMEOUT_S)

    def warn(self, text: str) -> None:
        """Tell the client something, once."""
        if text not in self.warnings:
            self.warnings.append(text)


@dataclass(slots=True, kw_only=True)
class Options:
    """Options of a write as reviews carry them (CreateOptions, UpdateOptions, …)."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> Json:
        """The wire form."""
        return {"kind": self.kind, "apiVersion": "meta.k8s.io/v1", **self.fields}
