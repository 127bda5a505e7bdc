"""Addresses of the Kubernetes API."""

from __future__ import annotations

import pytest

from sharing.cluster.kind import GPU_NODES, LEASES, NODES, PODS, Kind


@pytest.mark.parametrize(
    ("kind", "parts", "path"),
    [
        (PODS, {}, "/api/v1/pods"),
        (PODS, {"namespace": "a"}, "/api/v1/namespaces/a/pods"),
        (
            PODS,
            {"namespace": "a", "name": "p", "subresource": "status"},
            "/api/v1/namespaces/a/pods/p/status",
        ),
        (NODES, {"name": "n", "namespace": "ignored"}, "/api/v1/nodes/n"),
        (
            LEASES,
            {"namespace": "a", "name": "l"},
            "/apis/coordination.k8s.io/v1/namespaces/a/leases/l",
        ),
        (GPU_NODES, {"name": "x/y z"}, "/apis/gpu.sharing/v1alpha1/gpunodes/x%2Fy%20z"),
        (GPU_NODES, {"name": ".."}, "/apis/gpu.sharing/v1alpha1/gpunodes/%2E%2E"),
    ],
)
def test_an_address_is_made_from_its_parts(kind: Kind, parts: dict[str, str], path: str) -> None:
    assert kind.path(**parts) == path


def test_a_kind_knows_its_api_version_and_its_full_name() -> None:
    assert (PODS.api_version, str(PODS)) == ("v1", "pods")
    assert (GPU_NODES.api_version, str(GPU_NODES)) == (
        "gpu.sharing/v1alpha1",
        "gpunodes.gpu.sharing",
    )
