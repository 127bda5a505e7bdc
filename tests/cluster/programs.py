"""The programs of a real cluster: where they are looked for, and how they are built.

    python -m tests.cluster.programs                      everything that the tests need
    python -m tests.cluster.programs etcd kubelet         some of it
    python -m tests.cluster.programs --kubernetes 1.36    an API server of another version

A program is looked for in ``GPU_SHARING_CLUSTER_BIN``, ``KUBEBUILDER_ASSETS``, the cache and, for
what a distribution may bring, ``PATH``. What is missing is built by this module, which
``make cluster-programs`` and CI call; tests never start a build behind a person's back.

``GPU_SHARING_KUBERNETES=1.36`` has tier a run on an API server of that version, from the cache.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.cluster import golang
from tests.cluster.golang import Module, cache_root

TOOLS: Final = Path(__file__).parent / "tools"
VERSION_SWITCH: Final = "GPU_SHARING_KUBERNETES"
HOW_TO_GET_THEM: Final = "make cluster-programs"
_REQUIRED: Final = re.compile(r"k8s\.io/kubernetes v(\d+\.\d+\.\d+)")
_STRIPPED: Final = "-s -w"
_QUICK: Final = ("-trimpath", "-gcflags=all=-dwarf=false")
"""What nobody debugs needs no debugging symbols: a tenth of a build's time."""


def _kubernetes(folder: str, names: Iterable[str]) -> Module:
    path = TOOLS / folder
    found = _REQUIRED.search((path / "go.mod").read_text("utf-8"))
    assert found is not None, f"{path}/go.mod requires no k8s.io/kubernetes"
    major, minor, _ = found[1].split(".")
    stamp = "k8s.io/component-base/version"
    stamps = (
        f"-X {stamp}.gitVersion=v{found[1]} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
    )
    return Module(
        name=folder,
        path=path,
        packages={name: f"k8s.io/kubernetes/cmd/{name}" for name in names},
        flags=(*_QUICK, f"-ldflags={_STRIPPED} {stamps}"),
        room_gb=8,
    )


_CONTAINERD: Final = "github.com/containerd/containerd/v2/cmd"
_CNI: Final = "github.com/containernetworking/plugins/plugins"
_NODE: Final = Module(
    name="node",
    path=TOOLS / "node",
    packages={
        "etcd": "go.etcd.io/etcd/server/v3",
        "containerd": f"{_CONTAINERD}/containerd",
        "containerd-shim-runc-v2": f"{_CONTAINERD}/containerd-shim-runc-v2",
        "ctr": f"{_CONTAINERD}/ctr",
        "runc": "github.com/opencontainers/runc",
        "bridge": f"{_CNI}/main/bridge",
        "loopback": f"{_CNI}/main/loopback",
        "host-local": f"{_CNI}/ipam/host-local",
    },
    flags=(*_QUICK, "-tags=seccomp", f"-ldflags={_STRIPPED}"),
)
_KUBERNETES: Final = _kubernetes(
    "kubernetes", ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
)
HELM_VERSION: Final = "3.22.0"
"""What the golden files are rendered with; its go.mod names the same."""
_HELM: Final = Module(
    name="helm",
    path=TOOLS / "helm",
    packages={"helm": "helm.sh/helm/v3/cmd/helm"},
    flags=(
        *_QUICK,
        f"-ldflags={_STRIPPED} -X helm.sh/helm/v3/internal/version.version=v{HELM_VERSION}",
    ),
)
_PROMTOOL: Final = Module(
    name="promtool",
    path=TOOLS / "promtool",
    packages={"promtool": "github.com/prometheus/prometheus/cmd/promtool"},
    # Without service discovery: half of its dependencies, none of it needed to test rules.
    flags=(*_QUICK, "-tags=remove_all_sd", f"-ldflags={_STRIPPED}"),
)
MODULES: Final = (_NODE, _KUBERNETES, _HELM, _PROMTOOL)
CONTROL_PLANE: Final = ("etcd", "kube-apiserver")
"""What tier a needs."""
NODE: Final = (*_NODE.packages, *_KUBERNETES.packages)
"""What runs in tier b; tests use ``KUBECTL`` besides."""
KUBECTL: Final = "kubectl"
"""A dependency of ours brings it, so it is not built."""
CHART: Final = ("helm", "promtool")
"""What the chart's tests need besides."""
_OF_A_DISTRIBUTION: Final = (*CONTROL_PLANE, KUBECTL, *CHART)
"""What may come from PATH: any version of them does."""


class ProgramMissingError(Exception):
    """A program of the cluster is not on this machine."""

    def __init__(self, name: str) -> None:
        where = (
            str(cache_root())
            if asked_version()
            else f"GPU_SHARING_CLUSTER_BIN, KUBEBUILDER_ASSETS, {cache_root()}, PATH"
        )
        super().__init__(f"{name} is in none of {where}; build it once with: {how_to_build()}")


def versions() -> dict[str, Module]:
    """The other versions of Kubernetes that tier a can run on, such as ``1.36``."""
    folders = sorted(path.name for path in TOOLS.glob("kubernetes-*"))
    return {
        folder.removeprefix("kubernetes-"): _kubernetes(folder, ("kube-apiserver",))
        for folder in folders
    }


def asked_version() -> str:
    """The version that this run shall use instead of the usual one; empty for that."""
    return os.environ.get(VERSION_SWITCH, "")


def how_to_build() -> str:
    """The command that builds what a run needs."""
    version = asked_version()
    return (
        f"python -m tests.cluster.programs --kubernetes {version}" if version else HOW_TO_GET_THEM
    )


def _of_version(version: str) -> Module:
    known = versions()
    if version not in known:
        sys.exit(
            f"there is no module for Kubernetes {version!r}; there are {', '.join(known)}: "
            "python -m tests.cluster.pinning 1.36.3 makes one"
        )
    return known[version]


def find(name: str) -> Path:
    """A program's path.

    Raises:
        ProgramMissingError: It is nowhere.
    """
    version = asked_version()
    if version and name in _KUBERNETES.packages:
        found = golang.kept(_of_version(version), name)
        if found is None:
            raise ProgramMissingError(name)
        return found
    for variable in ("GPU_SHARING_CLUSTER_BIN", "KUBEBUILDER_ASSETS"):
        folder = os.environ.get(variable)
        if folder and (Path(folder) / name).exists():
            return Path(folder) / name
    for module in MODULES:
        if name in module.packages and (path := golang.kept(module, name)):
            return path
    beside = str(Path(sys.executable).parent) if name == KUBECTL else None
    on_path = shutil.which(name, path=beside) or shutil.which(name)
    if on_path is None or name not in _OF_A_DISTRIBUTION:
        raise ProgramMissingError(name)
    return Path(on_path)


def missing(names: Iterable[str]) -> list[str]:
    """Those of the programs that are nowhere."""
    absent = []
    for name in names:
        try:
            find(name)
        except ProgramMissingError:
            absent.append(name)
    return absent


def build(names: Sequence[str] = ()) -> None:
    """Build those of the programs that are nowhere; all of them by default.

    Cold this takes two cores some 15 minutes, most of it for Kubernetes.
    """
    todo = missing(names or (*NODE, *CHART))
    golang.build(
        [(module, [name for name in module.packages if name in todo]) for module in MODULES]
    )


def _main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.programs")
    parser.add_argument("names", nargs="*", help="some of the programs; all if none is named")
    parser.add_argument(
        "--kubernetes", metavar="VERSION", action="append", default=[],
        help=f"an API server of another version: {', '.join(versions())}",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    known = {name for module in MODULES for name in module.packages}
    if unknown := sorted(set(given.names) - known):
        parser.error(f"{', '.join(unknown)}: expected some of {', '.join(sorted(known))}")
    if given.kubernetes:
        modules = [_of_version(version) for version in given.kubernetes]
        build(("etcd", *given.names))
        golang.build([(module, list(module.packages)) for module in modules])
    else:
        build(given.names)


if __name__ == "__main__":
    _main(sys.argv[1:])
