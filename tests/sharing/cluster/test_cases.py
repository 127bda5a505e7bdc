"""Reports about amounts that the API server itself has to hold."""

from __future__ import annotations

import pytest

from embedded.apiserver.server import ApiServer
from sharing.cluster import credentials
from sharing.cluster.client import Client
from sharing.cluster.errors import ForbiddenError
from sharing.cluster.kind import PODS, Kind

QUOTAS = Kind(kind="ResourceQuota", plural="resourcequotas")
UNIT = "gpu.sharing/milli-gpu"


async def test_a_quota_of_zero_blocks_and_is_not_taken_for_none() -> None:
    """HAMi read an explicit zero as "no limit"."""
    async with ApiServer() as server:
        token = server.kubeconfig()["users"][0]["user"]["token"]

        async def source() -> credentials.Access:
            return credentials.Access(
                server=server.url, origin="test", authorization=f"Bearer {token}"
            )

        async with Client(source) as client:
            quota = {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "none", "namespace": "default"},
                "spec": {"hard": {f"requests.{UNIT}": "0"}},
            }
            await client.create(QUOTAS, quota)
            amounts = {UNIT: "1"}
            container = {
                "name": "main",
                "image": "test.local/busybox:1",
                "resources": {"limits": amounts, "requests": amounts},
            }
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "train", "namespace": "default"},
                "spec": {"containers": [container]},
            }

            with pytest.raises(ForbiddenError, match=r"exceeded quota: none.*milli-gpu=0"):
                await client.create(PODS, pod)
