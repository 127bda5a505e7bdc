"""Building the Go programs, into a cache folder and never into the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sharing.errors import UnavailableError

SOURCES: Final = Path(__file__).with_name("go")
_CACHE_VARIABLE: Final = "GPU_SHARING_BENCH_CACHE"
_PROGRAMS: Final = ("lean", "controllerruntime", "load")
_USUAL_PLACE: Final = "/usr/local/go/bin/go"


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The folder of the built programs, and what they were built with."""

    folder: Path
    go_version: str
    controller_runtime: str

    def path(self, name: str) -> str:
        """A program's path."""
        return str(self.folder / name)


def cache_folder() -> Path:
    """Where built programs are kept: ``GPU_SHARING_BENCH_CACHE``, or the user's cache."""
    chosen = os.environ.get(_CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "gpu-sharing" / "bench"


def find_go() -> str | None:
    """The Go command; None where there is none."""
    found = shutil.which("go")
    if found is None and os.access(_USUAL_PLACE, os.X_OK):
        return _USUAL_PLACE
    return found


def build(go: str | None, names: tuple[str, ...] = _PROGRAMS) -> Programs:
    """Build programs, or find them built.

    Args:
        go: The Go command; None where there is none.
        names: Which ones; all of them if not said.

    Raises:
        UnavailableError: There is no Go, or the programs cannot be built.
    """
    if go is None:
        raise UnavailableError(
            "Go",
            "there is no go command on PATH",
            fix="install Go 1.26 or newer; its servers are what ours is compared with",
        )
    folder = cache_folder() / "webhook"
    folder.mkdir(parents=True, exist_ok=True)
    _run(
        [go, "build", "-trimpath", "-o", f"{folder}/", *(f"./{name}" for name in names)],
        "build the Go programs",
    )
    version = _run([go, "env", "GOVERSION"], "ask Go for its version").strip()
    return Programs(
        folder=folder, go_version=version, controller_runtime=_required("controller-runtime")
    )


def _run(command: list[str], what: str) -> str:
    # Without version control's stamp a build needs no git, and its result does not change.
    environment = os.environ | {"GOFLAGS": "-buildvcs=false"}
    nice = shutil.which("nice")
    command = [nice, "-n", "5", *command] if nice else command
    done = subprocess.run(
        command, cwd=SOURCES, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise UnavailableError(
            "Go",
            f"cannot {what}: {said[-1] if said else f'exit status {done.returncode}'}",
            fix=f"run it in {SOURCES} to see all of it: {' '.join(command)}",
        )
    return done.stdout


def _required(module: str) -> str:
    found = re.search(rf"/{module} (v\S+)", (SOURCES / "go.mod").read_text("utf-8"))
    return found[1] if found else "unknown"
