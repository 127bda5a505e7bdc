"""The keys of a node's programs, made before it starts: they take longer than namespaces do."""

from __future__ import annotations

from collections.abc import Sequence

from tests.cluster.access import ADMIN, ADMIN_GROUPS, write_kubeconfig
from tests.cluster.box.spec import NodeSpec
from tests.cluster.flags import KUBERNETES_SERVICE
from tests.cluster.keys import Authority, service_account_keys


def make_keys(spec: NodeSpec, authority: Authority) -> None:
    """All pairs and the kubeconfigs of the programs inside."""
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    hosts = ["127.0.0.1", "localhost", spec.address, KUBERNETES_SERVICE, *names]
    authority.server("apiserver", hosts)
    authority.server("kubelet-server", (spec.address, spec.node))
    service_account_keys(spec.keys)
    authority.client("kubelet-client", "kube-apiserver-kubelet-client", ADMIN_GROUPS)
    users: dict[str, tuple[str, Sequence[str]]] = {
        ADMIN: (ADMIN, ADMIN_GROUPS),
        "controller-manager": ("system:kube-controller-manager", ()),
        "scheduler": ("system:kube-scheduler", ()),
        "kubelet": (f"system:node:{spec.node}", ("system:nodes",)),
    }
    for file, (user, groups) in users.items():
        pair = authority.client(file, user, groups)
        write_kubeconfig(
            spec.keys / f"{file}.kubeconfig", spec.server, authority.pair.certificate, pair
        )
