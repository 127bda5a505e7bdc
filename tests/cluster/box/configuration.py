"""How the programs of a node are told to run (pure).

Sources: containerd's docs/cri/config.md, kubelet.config.k8s.io/v1beta1, the CNI plugins'
documentation. Where a default would write on the machine or wait for it, it is overruled.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tests.cluster import flags
from tests.cluster.box.spec import API_PORT, NodeSpec
from tests.cluster.keys import Pair

IMAGE: Final = "test.local/busybox:1"
"""What tests run. A name without a host would be looked for in a public registry."""
PAUSE: Final = "test.local/pause:1"
ETCD_PORT: Final = 2379
RUNTIME_SOCKET: Final = "/run/containerd/containerd.sock"
_VOLUME_PLUGINS: Final = Path("/run/volume-plugins")
_CRI: Final = "io.containerd.cri.v1"


def pair(spec: NodeSpec, name: str) -> Pair:
    """One of the pairs that the test run made."""
    return Pair(certificate=spec.keys / f"{name}.crt", key=spec.keys / f"{name}.key")


def etcd(spec: NodeSpec) -> list[str]:
    """etcd's flags; its data outlives a reboot, as on a machine with a disk."""
    return flags.etcd(Path("/var/lib/etcd"), client=ETCD_PORT, peer=ETCD_PORT + 1)


def apiserver(spec: NodeSpec) -> list[str]:
    """The API server's flags.

    With aggregator routing a webhook that is named by a Service is called at its EndpointSlice's
    address; there is no proxy that would carry the Service's own.
    """
    kubelet = pair(spec, "kubelet-client")
    more = (
        "--bind-address=0.0.0.0", f"--advertise-address={spec.address}",
        "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-client-certificate={kubelet.certificate}",
        f"--kubelet-client-key={kubelet.key}",
        f"--kubelet-certificate-authority={pair(spec, 'ca').certificate}",
        "--kubelet-preferred-address-types=InternalIP", "--enable-aggregator-routing=true",
    )  # fmt: skip
    return flags.apiserver(
        etcd_port=ETCD_PORT,
        port=API_PORT,
        serving=pair(spec, "apiserver"),
        clients=pair(spec, "ca").certificate,
        accounts=Pair(certificate=spec.keys / "sa.pub", key=spec.keys / "sa.key"),
        more=(*more, *spec.api_flags),
    )


def controller_manager(spec: NodeSpec) -> list[str]:
    """The controller manager's flags."""
    return flags.controller_manager(
        spec.keys / "controller-manager.kubeconfig",
        authority=pair(spec, "ca"),
        accounts=Pair(certificate=spec.keys / "sa.pub", key=spec.keys / "sa.key"),
        plugins=_VOLUME_PLUGINS,
    )


def containerd(spec: NodeSpec) -> str:
    """containerd's configuration file.

    Without CAP_SYS_RESOURCE negative oom scores cannot be set, hence restrict_oom_score_adj.
    """
    plugins = sorted(
        {str(spec.programs[name].parent) for name in ("bridge", "loopback", "host-local")}
    )
    return f"""
version = 4
root = "/var/lib/containerd"
state = "/run/containerd"
imports = []
disabled_plugins = [
  "io.containerd.nri.v1.nri",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing",
]
[debug]
  level = "warn"
[plugins."io.containerd.internal.v1.opt"]
  path = "/run/containerd-opt"
[plugins."{_CRI}.images"]
  snapshotter = "overlayfs"
[plugins."{_CRI}.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."{_CRI}.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  cdi_spec_dirs = ["/run/cdi"]
[plugins."{_CRI}.runtime".containerd]
  default_runtime_name = "runc"
[plugins."{_CRI}.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."{_CRI}.runtime".containerd.runtimes.runc.options]
  BinaryName = "{spec.programs["runc"]}"
  SystemdCgroup = false
[plugins."{_CRI}.runtime".cni]
  bin_dirs = {json.dumps(plugins)}
  conf_dir = "/run/cni"
"""


def cni(spec: NodeSpec) -> str:
    """The pod network: one bridge, no masquerading, so that no iptables is needed."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": spec.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge", "bridge": "pods0", "isGateway": True, "ipMasq": False,
        "ipam": addresses,
    }  # fmt: skip
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]})


def kubelet(spec: NodeSpec) -> str:
    """The kubelet's configuration file.

    It looks at its devices every second and writes the node's status when something changed; the
    default look, every 10 s, would make each test wait for it.
    """
    serving = pair(spec, "kubelet-server")
    nothing = dict.fromkeys(("nodefs.available", "nodefs.inodesFree"), "0%")
    nothing |= dict.fromkeys(("imagefs.available", "imagefs.inodesFree"), "0%")
    settings: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True, "cacheTTL": "30s"},
            "x509": {"clientCAFile": str(pair(spec, "ca").certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "clusterDNS": ["10.0.0.10"],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{RUNTIME_SOCKET}",
        "evictionHard": {"memory.available": "100Mi", **nothing},
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "makeIPTablesUtilChains": False,
        "maxPods": 200,
        "nodeStatusReportFrequency": "1m",
        "nodeStatusUpdateFrequency": "1s",
        "oomScoreAdj": 0,
        "podLogsDir": "/run/pod-logs",
        "registerWithTaints": [],
        "resolvConf": "",
        "staticPodPath": "/run/static-pods",
        "syncFrequency": "10s",
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "volumePluginDir": str(_VOLUME_PLUGINS),
    }
    return json.dumps({**settings, **spec.kubelet})


def kubelet_flags(spec: NodeSpec, configuration: Path) -> list[str]:
    """The kubelet's flags."""
    labels = ",".join(f"{key}={value}" for key, value in sorted(spec.labels.items()))
    return [
        f"--config={configuration}", f"--kubeconfig={spec.keys / 'kubelet.kubeconfig'}",
        f"--hostname-override={spec.node}", f"--node-ip={spec.address}",
        "--root-dir=/var/lib/kubelet", *([f"--node-labels={labels}"] if labels else []),
    ]  # fmt: skip
