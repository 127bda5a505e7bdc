"""Rules for CustomResourceDefinitions (pure)."""

from __future__ import annotations

from embedded.apiserver.objects import Json
from embedded.apiserver.status import Cause


def causes_of(obj: Json) -> list[Cause]:
    """What is wrong with a CustomResourceDefinition."""
    return []
