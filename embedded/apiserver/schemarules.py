"""Validation of custom resources against their schemas (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embedded.apiserver.objects import Json
from embedded.apiserver.status import Cause


def causes_of(obj: Json, old: Json | None, schema: Mapping[str, Any]) -> list[Cause]:
    """What is wrong with a custom resource."""
    return []
