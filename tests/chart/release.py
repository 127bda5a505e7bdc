"""A release of the chart on a real node, its programs as processes of the node.

There is no engine that would build the image, so the pods of the release never start. What would
run in them runs beside them: with the arguments and the environment that the API server holds for
each container, with a token of its service account that is bound to such a pod, and with the node's
network and folders.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from sharing.names import MODE_LABEL
from tests.chart import installing, rendering
from tests.chart.tool import HELM
from tests.cluster.access import Access
from tests.cluster.box.box import Box
from tests.cluster.waiting import until

PREVIOUS: Final = Path(__file__).parent / "previous" / "0.1.0.yaml"
"""What an earlier chart rendered for its default values; see ``previous_chart``."""
ON_A_NODE: Final[Mapping[str, Any]] = {
    "image": {"pullPolicy": "Never"},
    "webhook": {"replicas": 1, "drain": {"delaySeconds": 0, "timeoutSeconds": 1}},
    "controller": {"replicas": 1, "ports": {"health": 8082}},
    "agent": {
        "driver": "simulated",
        "simulated": {"boards": "2xH100-80GB"},
        "ports": {"health": 8081},
    },
}
"""Values for one node on which all programs share the network."""
HEALTH_PORTS: Final = {"webhook": 8080, "agent": 8081, "controller": 8082}
_KINDS: Final = {"webhook": "deployments", "agent": "daemonsets", "controller": "deployments"}
_START_S: Final = 60.0


def previous_chart(folder: Path) -> Path:
    """A chart that renders what an earlier one did, for upgrades from it.

    A released chart's manifests are never changed here; a new release adds its own.
    """
    (folder / "templates").mkdir(parents=True)
    head = {"apiVersion": "v2", "name": "gpu-sharing", "version": "0.0.1", "type": "application"}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(head))
    (folder / "objects.yaml").write_text(PREVIOUS.read_text("utf-8"))
    (folder / "templates" / "objects.yaml").write_text('{{ .Files.Get "objects.yaml" }}\n')
    return folder


def helm(access: Access, verb: str, *words: str) -> str:
    """Have Helm do something with the release; what it said.

    Raises:
        AssertionError: It refused.
    """
    done = HELM.run(verb, "gpu-sharing", *words, *where(access))
    assert done.returncode == 0, done.stderr
    return done.stdout


def where(access: Access) -> tuple[str, ...]:
    """Helm's arguments for the cluster and our namespace."""
    return ("--namespace", rendering.NAMESPACE, "--kubeconfig", str(access.kubeconfig()))


def values_file(folder: Path, values: Mapping[str, Any]) -> tuple[str, str]:
    """Helm's arguments for values."""
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(dict(values)))
    return ("--values", str(path))


class Programs:
    """The programs of the release on one node.

    Args:
        box: The node.
    """

    def __init__(self, box: Box) -> None:
        self._box = box

    def start(self, program: str) -> None:
        """Start a program as its container is described, and wait until it is ready."""
        container = self._container(program)
        environment = {
            each["name"]: each.get("value") or self._field(each["valueFrom"])
            for each in container.get("env", ())
        }
        path = installing.bound_account(
            self._box.access, f"gpu-sharing-{program}", self._box.node, server=self._box.spec.server
        )
        words = [sys.executable, "-m", "cli.main", *container["args"], "--kubeconfig", str(path)]
        self._box.start_program(program, words, environment)
        port = HEALTH_PORTS[program]
        ask = f"wget -q -O /dev/null http://127.0.0.1:{port}/readyz && echo ready || true"
        until(
            f"{program} is ready",
            lambda: "ready" in self._box.exec("busybox", "sh", "-c", ask),
            timeout_s=_START_S,
        )

    def stop(self, program: str) -> int:
        """End a program in good order; its exit code."""
        return self._box.stop_program(program)

    def _container(self, program: str) -> dict[str, Any]:
        path = f"/apis/apps/v1/namespaces/{rendering.NAMESPACE}/{_KINDS[program]}"
        found = self._box.access.call("GET", f"{path}/gpu-sharing-{program}")
        (container,) = found["spec"]["template"]["spec"]["containers"]
        return dict(container)

    def _field(self, source: Mapping[str, Any]) -> str:
        known = {"spec.nodeName": self._box.node, "metadata.namespace": rendering.NAMESPACE}
        return known[source["fieldRef"]["fieldPath"]]


def verified(box: Box) -> str:
    """What the pod of ``helm test`` says, under its account; without the Service, for want of DNS.

    Raises:
        AssertionError: It says no.
    """
    shown = HELM.run("get", "hooks", "gpu-sharing", *where(box.access))
    assert shown.returncode == 0, shown.stderr
    (pod,) = [each for each in yaml.safe_load_all(shown.stdout) if each]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,) = pod["spec"]["containers"]
    words = [word for word in container["args"] if not word.startswith("--connect=")]
    path = installing.bound_account(box.access, pod["spec"]["serviceAccountName"], box.node)
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *words, "--kubeconfig", str(path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=_START_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def endpoint(box: Box) -> Iterator[None]:
    """The webhook's Service leads to the node, where the program listens."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{rendering.NAMESPACE}/endpointslices"
    name = "gpu-sharing-webhook-on-the-node"
    box.access.call("POST", path, {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "gpu-sharing-webhook"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [box.spec.address], "conditions": {"ready": True}}],
        "ports": [{"name": "reviews", "port": 8443, "protocol": "TCP"}],
    })  # fmt: skip
    try:
        yield
    finally:
        box.access.call("DELETE", f"{path}/{name}")


@contextmanager
def tenant(box: Box, mode: str) -> Iterator[str]:
    """A namespace that shares GPUs in a mode."""
    with box.access.namespace(account=True, labels={MODE_LABEL: mode}) as name:
        yield name


def bundles(access: Access) -> dict[str, str]:
    """What API servers trust, by entry of the webhook configuration; empty for nothing."""
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gpu-sharing"
    entries = access.call("GET", path)["webhooks"]
    return {each["name"]: each["clientConfig"].get("caBundle", "") for each in entries}
