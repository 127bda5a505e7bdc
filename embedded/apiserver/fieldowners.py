"""Who owns which field: ``metadata.managedFields`` (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """How an object is written, for the bookkeeping of owners.

    Attributes:
        manager: The field manager.
        applied: Server-side apply has done the bookkeeping already.
    """

    manager: str
    applied: bool = False


def record_write(
    new: Json, old: Json | None, kind: ResourceKind, write: Write, *, subresource: str = ""
) -> None:
    """Give the fields that a write changed to its manager."""
