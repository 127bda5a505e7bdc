"""Brings the programs of a node up in order, each once what it needs is well."""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

from tests.cluster import flags
from tests.cluster.box import configuration
from tests.cluster.box.machine import Machine
from tests.cluster.box.spec import NodeSpec
from tests.cluster.box.supervisor import Supervisor
from tests.cluster.waiting import until

CONTROL_PLANE: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_TIMEOUT_S: Final = 90.0
_CALL_TIMEOUT_S: Final = 5.0
_PLUGIN_SOCKET: Final = "/var/lib/kubelet/device-plugins/kubelet.sock"
_KUBELET_HEALTH: Final = "http://127.0.0.1:10248/healthz"


class Node:
    """The order of a start and of a reboot.

    Attributes:
        phases: Seconds since the start at which each step was done.
    """

    def __init__(self, spec: NodeSpec, supervisor: Supervisor, machine: Machine) -> None:
        self._spec = spec
        self._supervisor = supervisor
        self._machine = machine
        self._tls: ssl.SSLContext | None = None
        self._begun = time.monotonic()
        self.phases: dict[str, float] = {}

    def start(self) -> None:
        """The first start, until the node takes pods."""
        self._machine.set_up()
        self._note("namespaces are set up")
        if self._spec.control_plane:
            self._start("etcd", configuration.etcd(self._spec))
        self._start_runtime()
        if self._spec.control_plane:
            self._start_apiserver()
        self._wait_for_runtime()
        self._load_image()
        self._wait_for_apiserver()
        if self._spec.control_plane:
            self._start_controllers()
        self._start_kubelet()
        self._wait_for_node()
        if self._spec.control_plane:
            self._until("default service account", self._has_default_account)

    def reboot(self, *, whole: bool) -> None:
        """Kill everything as a power cut does, forget what memory holds, and start again.

        Args:
            whole: The control plane too; else it runs on, as if it were another machine's.
        """
        runs_on = self._spec.control_plane and not whole
        self._supervisor.kill_all_but(CONTROL_PLANE if runs_on else ())
        self._machine.reboot()
        if whole and self._spec.control_plane:
            self._supervisor.start("etcd")
        self._supervisor.start("containerd")
        if whole and self._spec.control_plane:
            self._wait_for_etcd()
            self._supervisor.start("kube-apiserver")
        self._wait_for_runtime()
        self._wait_for_apiserver()
        if whole and self._spec.control_plane:
            self._supervisor.start("kube-controller-manager")
            self._supervisor.start("kube-scheduler")
        self._supervisor.start("kubelet")
        self._wait_for_node()

    def _start(self, name: str, arguments: list[str]) -> None:
        self._supervisor.start(name, (str(self._spec.programs[name]), *arguments))

    def _start_runtime(self) -> None:
        path = self._spec.folder / "containerd.toml"
        path.write_text(configuration.containerd(self._spec))
        self._start("containerd", ["--config", str(path)])

    def _start_apiserver(self) -> None:
        self._wait_for_etcd()
        self._start("kube-apiserver", configuration.apiserver(self._spec))

    def _start_controllers(self) -> None:
        self._start("kube-controller-manager", configuration.controller_manager(self._spec))
        path = self._spec.folder / "scheduler.json"
        kubeconfig = self._spec.keys / "scheduler.kubeconfig"
        path.write_text(flags.scheduler_configuration(kubeconfig))
        self._start("kube-scheduler", flags.scheduler(path))

    def _start_kubelet(self) -> None:
        path = self._spec.folder / "kubelet.json"
        path.write_text(configuration.kubelet(self._spec))
        self._start("kubelet", configuration.kubelet_flags(self._spec, path))

    def _load_image(self) -> None:
        ctr = self._spec.programs["ctr"]
        self._supervisor.run(ctr, "--namespace", "k8s.io", "images", "import", self._spec.image)
        self._note("image is loaded")

    # -- waiting

    def wait_for(self, name: str) -> None:
        """Until a program that was started again does its work."""
        waits = {
            "etcd": self._wait_for_etcd,
            "containerd": self._wait_for_runtime,
            "kube-apiserver": self._wait_for_apiserver,
            "kubelet": self._wait_for_kubelet,
        }
        if name in waits:
            waits[name]()

    def _wait_for_etcd(self) -> None:
        url = f"http://127.0.0.1:{configuration.ETCD_PORT}/health"
        self._until("etcd", lambda: b'"true"' in self._read(url))

    def _wait_for_runtime(self) -> None:
        self._until("containerd", self._runtime_answers)

    def _runtime_answers(self) -> bool:
        if not Path(configuration.RUNTIME_SOCKET).exists():
            return False
        ctr = str(self._spec.programs["ctr"])
        return self._supervisor.wait(self._supervisor.spawn([ctr, "version"], "run")) == 0

    def _wait_for_apiserver(self) -> None:
        self._until("kube-apiserver", lambda: self._read(f"{self._spec.server}/readyz") == b"ok")

    def _wait_for_kubelet(self) -> None:
        self._until("kubelet", lambda: self._read(_KUBELET_HEALTH) == b"ok" and _takes_plugins())

    def _wait_for_node(self) -> None:
        self._wait_for_kubelet()
        self._until(f"node {self._spec.node}", self._node_takes_pods)

    def _node_takes_pods(self) -> bool:
        """Ready in this boot, and without taints: those of a start are taken away last."""
        node = self._get(f"/api/v1/nodes/{self._spec.node}")
        conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
        boot_id = self._spec.boot_id_file.read_text().strip()
        return (
            conditions.get("Ready") == "True"
            and not node["spec"].get("taints")
            and node["status"]["nodeInfo"]["bootID"] == boot_id
        )

    def _has_default_account(self) -> bool:
        return bool(self._get("/api/v1/namespaces/default/serviceaccounts/default"))

    def _until(self, what: str, look: Any) -> None:
        until(what, look, timeout_s=_TIMEOUT_S, still=self._supervisor.check)
        self._note(f"{what} is well")

    def _note(self, phase: str) -> None:
        self.phases[phase] = round(time.monotonic() - self._begun, 2)

    def _get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._read(f"{self._spec.server}{path}"))
        return answer

    def _read(self, url: str) -> bytes:
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=str(self._spec.keys / "ca.crt"))
            admin = configuration.pair(self._spec, "admin")
            self._tls.load_cert_chain(admin.certificate, admin.key)
        context = self._tls if url.startswith("https") else None
        with urllib.request.urlopen(  # noqa: S310 - our own addresses
            url, timeout=_CALL_TIMEOUT_S, context=context
        ) as answer:
            body: bytes = answer.read()
            return body


def _takes_plugins() -> bool:
    """Whether the device manager listens, a little later than the kubelet is healthy.

    Raises:
        OSError: Not yet; the socket file of an earlier kubelet refuses.
    """
    with socket.socket(socket.AF_UNIX) as plugin:
        plugin.connect(_PLUGIN_SOCKET)
        return True
