"""How etcd, API server, controller manager and scheduler are told to run (pure).

Sources: the programs' own ``--help`` at the pinned versions. Files that a distribution would put
below ``/var`` or ``/etc`` are named one by one, so that nothing is written on the machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.cluster.keys import Pair

SERVICE_NETWORK: Final = "10.0.0.0/24"
KUBERNETES_SERVICE: Final = "10.0.0.1"
ISSUER: Final = "https://kubernetes.default.svc"
_MANY_CALLS: Final = 500
"""Calls a second; the programs' own limits are for clusters whose start nobody waits for."""


def etcd(data: Path, *, client: int, peer: int) -> list[str]:
    """Flags of one etcd on loopback that survives kill -9 but no power loss."""
    client_url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    return [
        f"--data-dir={data}", "--unsafe-no-fsync", "--log-level=warn",
        f"--listen-client-urls={client_url}", f"--advertise-client-urls={client_url}",
        f"--listen-peer-urls={peer_url}", f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
    ]  # fmt: skip


def apiserver(
    *,
    etcd_port: int,
    port: int,
    serving: Pair,
    clients: Path,
    accounts: Pair,
    more: Sequence[str] = (),
) -> list[str]:
    """Flags that an API server needs anywhere.

    Args:
        etcd_port: Where etcd listens.
        port: Where to listen.
        serving: Its serving pair.
        clients: Certificate of the authority that signs clients.
        accounts: Keys for service accounts' tokens.
        more: What this tier adds.
    """
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd_port}", f"--secure-port={port}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        f"--tls-cert-file={serving.certificate}", f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={clients}", f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={accounts.certificate}",
        f"--service-account-signing-key-file={accounts.key}",
        "--allow-privileged=true", "--profiling=false", *more,
    ]  # fmt: skip


def controller_manager(
    kubeconfig: Path, *, authority: Pair, accounts: Pair, plugins: Path
) -> list[str]:
    """Flags of the controller manager. Throttled calls would keep a new node tainted for 5 s."""
    return [
        f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--bind-address=127.0.0.1",
        f"--service-account-private-key-file={accounts.key}",
        f"--root-ca-file={authority.certificate}",
        f"--cluster-signing-cert-file={authority.certificate}",
        f"--cluster-signing-key-file={authority.key}",
        "--authentication-skip-lookup=true", "--use-service-account-credentials=true",
        "--profiling=false", f"--kube-api-qps={_MANY_CALLS}", f"--kube-api-burst={2 * _MANY_CALLS}",
        f"--flex-volume-plugin-dir={plugins}",
    ]  # fmt: skip


def scheduler(configuration: Path) -> list[str]:
    """Flags of the scheduler; what it binds as fast as it can is in its configuration."""
    return [
        f"--config={configuration}", "--bind-address=127.0.0.1",
        "--authentication-skip-lookup=true",
    ]  # fmt: skip


def scheduler_configuration(kubeconfig: Path, *, calls_per_s: int = _MANY_CALLS) -> str:
    """The scheduler's configuration file."""
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "enableProfiling": False,
            "clientConnection": {
                "kubeconfig": str(kubeconfig),
                "qps": calls_per_s,
                "burst": 2 * calls_per_s,
            },
        }
    )
