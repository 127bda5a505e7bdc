"""Server-side apply (pure)."""

from __future__ import annotations

from embedded.apiserver.calls import Call
from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json
from embedded.apiserver.patches import apply_merge_patch


def apply(
    old: Json | None, intent: Json, kind: ResourceKind, call: Call, *, subresource: str
) -> Json:
    """The object after an intent was applied."""
    merged: Json = apply_merge_patch(old or {}, intent)
    return merged
