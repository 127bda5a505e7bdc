"""``gpu-sharing webhook --certs-secret``: from an empty cluster to a webhook that is trusted."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner

from cli.main import cli
from embedded.apiserver import ApiServer, service_account
from sharing.api.crd import crd_manifests
from sharing.cluster.client import Client
from sharing.cluster.errors import InvalidError
from sharing.cluster.kind import CRDS, MUTATING_WEBHOOKS, NAMESPACES, PODS, SECRETS
from webhook.registration import client_by_service, configuration

NAMESPACE, SERVICE = "gpu-sharing", "gpu-sharing-webhook"
SECRET = "gpu-sharing-webhook-certs"


@asynccontextmanager
async def webhook(api: ApiServer, folder: Path) -> AsyncIterator[dict[str, str]]:
    """The real process; gives the addresses that it prints, by what it calls them."""
    kubeconfig = api.write_kubeconfig(folder / "kc", service_account(NAMESPACE, "webhook"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli.main", "webhook", "--kubeconfig", str(kubeconfig),
        "--certs-secret", f"{NAMESPACE}/{SECRET}", "--service", f"{NAMESPACE}/{SERVICE}",
        "--host", "127.0.0.1", "--port", "0", "--health-host", "127.0.0.1", "--health-port", "0",
        "--drain-delay", "0", "--drain-timeout", "2",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env=dict(os.environ),
    )  # fmt: skip
    assert process.stdout is not None
    addresses: dict[str, str] = {}
    try:
        async with asyncio.timeout(60):
            async for line in process.stdout:
                name, _, address = line.decode().strip().partition(": ")
                addresses[name] = address
                if name == "ready":
                    break
        yield addresses
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            await process.communicate()


async def becomes_ready(url: str) -> None:
    """Wait until the probe says that callers accept what is served."""
    async with asyncio.timeout(100), aiohttp.ClientSession() as session:
        while True:
            async with session.get(url) as response:
                if response.status == 200:
                    return
            await asyncio.sleep(0.05)  # a probe can only be asked again


async def test_a_webhook_makes_itself_trusted_and_judges_pods(tmp_path: Path) -> None:
    async with ApiServer(tls=True) as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "admin")
        async with Client.from_kubeconfig(kubeconfig) as admin:
            for crd in crd_manifests():
                await admin.create(CRDS, crd)
            await admin.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            labels = {"gpu.sharing/mode": "mps"}
            await admin.create(NAMESPACES, {"metadata": {"name": "team-a", "labels": labels}})
            await admin.create(
                MUTATING_WEBHOOKS,
                configuration(client_by_service(NAMESPACE, SERVICE, "/mutate")),
            )

            async with webhook(api, tmp_path) as addresses:
                port = int(addresses["ready"].rpartition(":")[2].partition("/")[0])
                api.serve_service(NAMESPACE, SERVICE, "127.0.0.1", port)
                await becomes_ready(addresses["health"])
                malformed = {
                    "metadata": {
                        "name": "a", "namespace": "team-a",
                        "annotations": {"gpu.sharing/fraction": "a quarter"},
                    },
                    "spec": {"containers": [{"name": "main", "image": "registry.example/a:1"}]},
                }  # fmt: skip
                with pytest.raises(InvalidError, match="'a quarter' is no fraction"):
                    await admin.create(PODS, malformed)
                secret = await admin.get(SECRETS, SECRET, namespace=NAMESPACE)

    assert "tls.crt" in secret["data"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "a certificate is needed: --cert FILE and --key FILE"),
        (["--cert", "a"], "a certificate is needed"),
        (["--certs-secret", "a/b"], "go together"),
        (["--certs-secret", "a/b", "--service", "a/b", "--cert", "c"], "go together"),
        (["--static", ".", "--certs-secret", "a/b", "--service", "a/b"], "go together"),
    ],
)
def test_half_a_certificate_is_refused_with_both_ways(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: "
        "{server: 'http://127.0.0.1:9'}}], contexts: [{name: a, context: {cluster: a, user: a}}], "
        "users: [{name: a, user: {token: t}}]}"
    )
    static = "--static" in arguments
    cluster = [] if static else ["--kubeconfig", str(kubeconfig)]

    done = CliRunner().invoke(cli, ["webhook", *cluster, *arguments])

    assert done.exit_code == 2
    assert says in " ".join(done.output.split())
