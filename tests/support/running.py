"""Pods that run for as long as a test looks at them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.support.trials import PodKey, Trial


def key_of(manifest: Mapping[str, Any]) -> PodKey:
    """Namespace and name of a manifest."""
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


@asynccontextmanager
async def running(trial: Trial, *manifests: Mapping[str, Any]) -> AsyncIterator[list[PodKey]]:
    """Pods that run, and are gone afterwards."""
    keys = [key_of(each) for each in manifests]
    try:
        await asyncio.gather(*(trial.create(each) for each in manifests))
        for key in keys:
            pod = await trial.reaches(key, "Running", "Failed")
            assert pod["status"]["phase"] == "Running", pod["status"]
        yield keys
    finally:
        await trial.delete(*keys)
