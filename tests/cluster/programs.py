"""The programs of a real cluster: found, or built from pinned Go modules and kept in a cache.

A program is looked for in ``GPU_SHARING_CLUSTER_BIN``, ``KUBEBUILDER_ASSETS``, the cache and, for
what a distribution may bring, ``PATH``. What is missing is built when ``build`` is called, which
``make cluster-programs`` and CI do; tests never start a build behind a person's back.

The cache is ``GPU_SHARING_CLUSTER_CACHE``, or ``gpu-sharing/cluster`` in the user's cache folder.
Its folders are keyed by the module's ``go.mod`` and ``go.sum``, the flags and the Go version.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

TOOLS: Final = Path(__file__).parent / "tools"
KUBERNETES_VERSION: Final = "1.37.2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One Go module of tool dependencies and what is built from it."""

    folder: str
    packages: tuple[tuple[str, str], ...]
    """(program, Go package), the one that pays for the shared packages first."""
    flags: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The folder with ``go.mod`` and ``go.sum``."""
        return TOOLS / self.folder


def _kubernetes(version: str) -> Module:
    major, minor, _ = version.split(".")
    stamp = "k8s.io/component-base/version"
    stamps = (
        f"-X {stamp}.gitVersion=v{version} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
    )
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
    return Module(
        folder="kubernetes",
        packages=tuple((name, f"k8s.io/kubernetes/cmd/{name}") for name in names),
        flags=("-trimpath", f"-ldflags=-s -w {stamps}"),
    )


_CONTAINERD: Final = "github.com/containerd/containerd/v2/cmd"
_CNI: Final = "github.com/containernetworking/plugins/plugins"
MODULES: Final = (
    Module(
        folder="node",
        packages=(
            ("etcd", "go.etcd.io/etcd/server/v3"),
            ("containerd", f"{_CONTAINERD}/containerd"),
            ("containerd-shim-runc-v2", f"{_CONTAINERD}/containerd-shim-runc-v2"),
            ("ctr", f"{_CONTAINERD}/ctr"),
            ("runc", "github.com/opencontainers/runc"),
            ("bridge", f"{_CNI}/main/bridge"),
            ("loopback", f"{_CNI}/main/loopback"),
            ("host-local", f"{_CNI}/ipam/host-local"),
        ),
        flags=("-trimpath", "-tags=seccomp", "-ldflags=-s -w"),
    ),
    _kubernetes(KUBERNETES_VERSION),
)
CONTROL_PLANE: Final = ("etcd", "kube-apiserver")
"""What tier a needs."""
NODE: Final = tuple(name for module in MODULES for name, _ in module.packages)
"""What tier b needs."""


class ProgramMissingError(Exception):
    """A program of the cluster is not on this machine."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is in none of GPU_SHARING_CLUSTER_BIN, KUBEBUILDER_ASSETS, "
            f"{cache_root()}, PATH; build it once with: make cluster-programs"
        )


def cache_root() -> Path:
    """The folder that built programs are kept in."""
    named = os.environ.get("GPU_SHARING_CLUSTER_CACHE")
    user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(named) if named else Path(user).expanduser() / "gpu-sharing" / "cluster"


@cache
def go_version() -> str:
    """What ``go env GOVERSION`` says, empty without Go."""
    go = shutil.which("go")
    if go is None:
        return ""
    return subprocess.run(
        [go, "env", "GOVERSION"], check=True, capture_output=True, text=True
    ).stdout.strip()


def folder_of(module: Module) -> Path:
    """Where a module's programs are kept, for its sums, flags and this Go."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((module.path / name).read_bytes())
    digest.update("\0".join((*module.flags, go_version())).encode())
    return cache_root() / f"{module.folder}-{digest.hexdigest()[:16]}"


def find(name: str) -> Path:
    """A program's path.

    Raises:
        ProgramMissingError: It is nowhere.
    """
    for variable in ("GPU_SHARING_CLUSTER_BIN", "KUBEBUILDER_ASSETS"):
        folder = os.environ.get(variable)
        if folder and (Path(folder) / name).exists():
            return Path(folder) / name
    for module in MODULES:
        if name in dict(module.packages) and (folder_of(module) / name).exists():
            return folder_of(module) / name
    found = shutil.which(name)
    if found and name in CONTROL_PLANE:
        return Path(found)
    raise ProgramMissingError(name)


def missing(names: tuple[str, ...]) -> list[str]:
    """Those of the programs that are nowhere."""
    absent = []
    for name in names:
        try:
            find(name)
        except ProgramMissingError:
            absent.append(name)
    return absent


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Hold the cache: two runs on one machine do not build twice."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another run is building; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(names: tuple[str, ...]) -> None:
    """Build those of the programs that are nowhere. Cold: 16 minutes on two cores."""
    with _alone(cache_root()):
        todo = [
            (module, name, package)
            for module in MODULES
            for name, package in module.packages
            if name in missing(names)
        ]
        if not todo:
            return
        if not go_version():
            sys.exit("the cluster's programs are built with Go ≥ 1.26, and there is no go on PATH")
        with tempfile.TemporaryDirectory(prefix="go-build-", dir=cache_root()) as objects:
            for number, (module, name, package) in enumerate(todo, 1):
                _say(f"building {name} ({number} of {len(todo)})")
                _build_one(module, name, package, objects)


def _build_one(module: Module, name: str, package: str, objects: str) -> None:
    target = folder_of(module)
    target.mkdir(parents=True, exist_ok=True)
    unfinished = target / f".{name}.{os.getpid()}"
    begun = time.monotonic()
    subprocess.run(
        ["go", "build", *module.flags, "-o", str(unfinished), package],
        cwd=module.path,
        env={**os.environ, "GOCACHE": objects, "GOFLAGS": "-buildvcs=false", "GOWORK": "off"},
        check=True,
    )
    unfinished.rename(target / name)
    _say(f"built {name} in {time.monotonic() - begun:.0f} s")


def _say(text: str) -> None:
    print(f"cluster programs: {text}", file=sys.stderr, flush=True)  # noqa: T201 - progress


if __name__ == "__main__":
    build(tuple(sys.argv[1:]) or NODE)
