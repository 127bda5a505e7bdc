"""The CRDs, rendered from the models, so that API server and programs say the same."""

from __future__ import annotations

from typing import Any


def crd_manifests() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of the group, sorted by name."""
    return []
