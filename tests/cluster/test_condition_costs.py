"""What a pod may hold and still be sent to nobody: the API server bounds what conditions cost."""

from __future__ import annotations

import pytest

from sharing.cluster.client import Client
from sharing.cluster.kind import PODS
from sharing.names import MODE_LABEL
from tests.cluster.controlplane import ControlPlane
from tests.cluster.needs import Tier
from tests.support.governed import governed
from tests.support.judging import container, pod

pytestmark = pytest.mark.cluster(Tier.CONTROL_PLANE.value)


async def test_a_pod_with_thousands_of_keys_is_no_fault_of_the_conditions(
    control_plane: ControlPlane,
) -> None:
    """ovn-kubernetes#6053: where a condition fails, failurePolicy Fail refuses the pod."""
    manifest = pod(container(), annotations={f"key-{n}": "" for n in range(10_000)})
    manifest["metadata"]["labels"] = {f"key-{n}": "" for n in range(20_000)}
    async with (
        Client.from_kubeconfig(control_plane.access.kubeconfig()) as client,
        governed(client, {"team": {MODE_LABEL: "mps"}}) as made,
    ):
        assert not await made.refused(PODS, manifest, made.namespaces["team"])
