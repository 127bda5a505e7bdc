"""Shares are ordinary resources: the cluster's own scheduler makes room for what matters more."""

from __future__ import annotations

from typing import Any

import pytest

from sharing.cluster.errors import NotFoundError
from sharing.cluster.kind import PODS, PRIORITY_CLASSES
from tests.cluster.waiting import eventually
from tests.support.forms import IMAGE
from tests.support.trials import Trial

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLASS = "crowd-out"


def half(name: str, **spec: Any) -> dict[str, Any]:
    """A pod that wants the node's one half by MPS."""
    return {
        "metadata": {
            "name": name, "namespace": "mps", "annotations": {"gpu.sharing/fraction": "1/2"},
        },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": IMAGE}], **spec,
        },
    }  # fmt: skip


async def test_a_pod_that_matters_more_gets_the_share_of_one_that_matters_less(
    trial: Trial,
) -> None:
    """volcano-sh/volcano#4863, #3186: a share was never taken back by priority."""
    await trial.counts_agree(lambda offered: offered.get("gpu.sharing/mps-1of2") == 1)
    await trial.client.create(PRIORITY_CLASSES, {"metadata": {"name": CLASS}, "value": 1000})
    low, high = ("mps", "lesser"), ("mps", "greater")
    try:
        await trial.create(half("lesser"))
        assert (await trial.reaches(low, "Running", "Failed"))["status"]["phase"] == "Running"

        await trial.create(half("greater", priorityClassName=CLASS))

        assert (await trial.reaches(high, "Running", "Failed"))["status"]["phase"] == "Running"

        async def gone() -> bool:
            try:
                pod = await trial.client.get(PODS, low[1], namespace=low[0])
            except NotFoundError:
                return True
            return bool(pod["status"]["phase"] == "Failed")

        await eventually("the lesser pod has made room", gone)
    finally:
        await trial.delete(low, high)
        await trial.client.delete(PRIORITY_CLASSES, CLASS)
        await trial.counts_agree()
