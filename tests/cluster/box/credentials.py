"""The keys of a node's programs, made before it starts: they take longer than namespaces do."""

from __future__ import annotations

from collections.abc import Sequence

from tests.cluster.access import ADMIN, ADMIN_GROUPS, write_kubeconfig
from tests.cluster.box.spec import NodeSpec
from tests.cluster.flags import KUBERNETES_SERVICE
from tests.cluster.keys import Authority, service_account_keys


def make_keys(spec: NodeSpec, authority: Authority) -> None:
    """All pairs and the kubeconfigs of the programs inside."""
    authority.server("kubelet-server", (spec.address, spec.node))
    _client(spec, authority, ADMIN, ADMIN, ADMIN_GROUPS)
    _client(spec, authority, "kubelet", f"system:node:{spec.node}", ("system:nodes",))
    if not spec.control_plane:
        return
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
    authority.server(
        "apiserver", ("127.0.0.1", "localhost", spec.address, KUBERNETES_SERVICE, *names)
    )
    authority.client("kubelet-client", "kube-apiserver-kubelet-client", ADMIN_GROUPS)
    service_account_keys(spec.keys)
    _client(spec, authority, "controller-manager", "system:kube-controller-manager")
    _client(spec, authority, "scheduler", "system:kube-scheduler")


def _client(
    spec: NodeSpec, authority: Authority, file: str, user: str, groups: Sequence[str] = ()
) -> None:
    pair = authority.client(file, user, groups)
    path = spec.keys / f"{file}.kubeconfig"
    write_kubeconfig(path, spec.server, authority.pair.certificate, pair)
