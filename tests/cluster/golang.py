"""Programs built from pinned Go modules, kept in a cache, and found there again.

Go is needed to build and for nothing else: what was built before is found without it. The cache is
``GPU_SHARING_CLUSTER_CACHE``, or ``gpu-sharing/cluster`` in the user's cache folder. Its folders
are named after the module, its ``go.mod``, ``go.sum`` and flags, and the Go that built them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Final

OLDEST_GO: Final = "1.26"
HOW_TO_GET_GO: Final = (
    f"the test cluster's programs are built with Go {OLDEST_GO} or newer, and there is no go on "
    "PATH or in /usr/local/go/bin: install it (https://go.dev/dl), or say where built programs are "
    "with GPU_SHARING_CLUSTER_BIN=/folder"
)
_USUAL_PLACE: Final = "/usr/local/go/bin/go"
_DIGITS: Final = 16
_SAID_EVERY_S: Final = 20.0
_KEPT_LINES: Final = 40
_COMPILERS_GOGC: Final = "400"
"""A compiler that collects its garbage seldom: 15 % less time for memory that a builder has."""
_TRIES: Final = 3
_NETWORK: Final = (
    "dial tcp", "i/o timeout", "TLS handshake timeout", "unexpected EOF", "connection reset",
    "http2: ", "502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One Go module of tool dependencies and what is built from it.

    Attributes:
        name: Of the cache's folder.
        path: The folder with ``go.mod`` and ``go.sum``.
        packages: Go package by program, the one that pays for the shared packages first.
        flags: For ``go build``.
        room_gb: What the build needs on the disk meanwhile, Go's own caches included.
    """

    name: str
    path: Path
    packages: Mapping[str, str]
    flags: tuple[str, ...]
    room_gb: int = 3

    @property
    def key(self) -> str:
        """What a folder of it in the cache begins with."""
        digest = hashlib.sha256()
        for name in ("go.mod", "go.sum"):
            digest.update((self.path / name).read_bytes())
        digest.update("\0".join(self.flags).encode())
        return f"{self.name}-{digest.hexdigest()[:_DIGITS]}-"


def cache_root() -> Path:
    """The folder that built programs are kept in."""
    named = os.environ.get("GPU_SHARING_CLUSTER_CACHE")
    user = os.environ.get("XDG_CACHE_HOME")
    folder = Path(user) if user else home() / ".cache"
    return Path(named) if named else folder / "gpu-sharing" / "cluster"


def home() -> Path:
    """The user's folder, also where nothing says so but the system's list of users."""
    named = os.environ.get("HOME")
    if named:
        return Path(named)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path(tempfile.gettempdir()) / f"home-{os.getuid()}"


def go_program() -> str | None:
    """Go, from PATH or the place where its installer puts it; None where there is none."""
    return shutil.which("go") or shutil.which(_USUAL_PLACE)


@cache
def go_version() -> str:
    """What ``go env GOVERSION`` says, empty without Go."""
    go = go_program()
    if go is None:
        return ""
    return subprocess.run(
        [go, "env", "GOVERSION"], check=True, capture_output=True, text=True, env=_environment()
    ).stdout.strip()


def _environment(objects: Path | None = None) -> dict[str, str]:
    """Ours, with what a build must not take from a person; Go refuses to work without a HOME."""
    said = {"HOME": str(home()), "GOFLAGS": "-buildvcs=false", "GOWORK": "off"}
    if objects is not None:
        said |= {"GOCACHE": str(objects), "GOGC": _COMPILERS_GOGC}
    return {**os.environ, **said}


def kept(module: Module, program: str, go: str | None = None) -> Path | None:
    """A program in the cache, of this Go, or of any where there is no Go; None if there is none.

    Args:
        module: What it was built from.
        program: Its name.
        go: Version of Go; that of this machine if it is not said, empty for a machine without.
    """
    found = [
        folder / program
        for folder in sorted(cache_root().glob(f"{module.key}*"), key=_by_version)
        if (folder / program).is_file()
    ]
    if version := go_version() if go is None else go:
        found = [path for path in found if path.parent.name == module.key + version]
    return found[-1] if found else None


def _by_version(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name.rpartition("-")[2])]


def build(wanted: Sequence[tuple[Module, Sequence[str]]]) -> None:
    """Build programs that are not in the cache, one module after the other.

    What the compiler keeps between packages (4 GB) is shared by all and thrown away at the end.

    Raises:
        SystemExit: There is no Go, or a build failed; the end of what Go said goes before.
    """
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with _alone(root):
        todo = [
            (module, [name for name in names if kept(module, name) is None])
            for module, names in wanted
        ]
        todo = [(module, names) for module, names in todo if names]
        if not todo:
            return
        if not go_version():
            sys.exit(HOW_TO_GET_GO)
        _sweep(root)
        _check_room(root, max(module.room_gb for module, _ in todo))
        with tempfile.TemporaryDirectory(prefix="go-build-", dir=root) as objects:
            for number, (module, names) in enumerate(todo, 1):
                say(f"{number} of {len(todo)}: building {', '.join(names)}")
                _build_one(module, names, Path(objects))


def _check_room(root: Path, needed_gb: int) -> None:
    free_gb = shutil.disk_usage(root).free / 1e9
    if free_gb < needed_gb:
        sys.exit(
            f"{root} has {free_gb:.1f} GB free, and the build of the test cluster's programs needs "
            f"{needed_gb} for a while: free some, or name a larger folder with "
            "GPU_SHARING_CLUSTER_CACHE=/folder"
        )


def _build_one(module: Module, names: Sequence[str], objects: Path) -> None:
    begun = time.monotonic()
    target = cache_root() / f"{module.key}{go_version()}"
    target.mkdir(exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="made-", dir=objects))
    packages = [module.packages[name] for name in names]
    command = [str(go_program()), "build", "-v", *module.flags, "-o", f"{made}/", *packages]
    for tries_left in reversed(range(_TRIES)):
        with subprocess.Popen(
            command, cwd=module.path, env=_environment(objects), stderr=subprocess.PIPE, text=True
        ) as go:
            assert go.stderr is not None
            said = _told(go.stderr, module.name, begun)
        if not go.returncode:
            break
        if not tries_left or not is_the_network(said):
            sys.exit("\n".join([*said, f"cluster programs: go build failed in {module.path}"]))
        say(f"{module.name}: once more, since a download failed: {said[-1]}")
    for name in names:
        (made / _file_name(module.packages[name])).rename(target / name)
    say(f"built {', '.join(names)} in {time.monotonic() - begun:.0f} s")


def is_the_network(said: Sequence[str]) -> bool:
    """Whether a build ended because a download did, so that another try may do (pure)."""
    return any(sign in line for line in said for sign in _NETWORK)


def _told(stream: IO[str], name: str, begun: float) -> list[str]:
    """Say every now and then how far a build is; returns the last lines of what it said."""
    lines: list[str] = []
    over = threading.Event()

    def tell() -> None:
        while not over.wait(_SAID_EVERY_S):
            count = sum(not line.startswith("go:") for line in lines)
            say(f"{name}: {count} packages after {time.monotonic() - begun:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    lines.extend(line.rstrip() for line in stream)
    over.set()
    teller.join()
    return lines[-_KEPT_LINES:]


def _file_name(package: str) -> str:
    """What ``go build`` calls a package's program: its last word that is no version."""
    words = package.split("/")
    return words[-2] if re.fullmatch(r"v\d+", words[-1]) else words[-1]


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Hold the cache: two runs on one machine do not build twice."""
    with (root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another run is building; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sweep(root: Path) -> None:
    """What a killed build left; the lock is ours, so nobody uses it."""
    for left in root.glob("go-build-*"):
        shutil.rmtree(left, ignore_errors=True)


def say(text: str) -> None:
    """A line of progress."""
    print(f"cluster programs: {text}", file=sys.stderr, flush=True)  # noqa: T201 - progress
