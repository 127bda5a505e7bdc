"""Helm, to render and check the chart: found, or built from its pinned Go module and kept.

It is looked for in ``GPU_SHARING_HELM`` (a file), ``GPU_SHARING_CLUSTER_BIN``, the cache of the
cluster's programs and ``PATH``. Only ``python -m tests.chart.helm`` builds it (three minutes on
two cores, once): tests never start a build behind a person's back.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster import programs

MODULE: Final = Path(__file__).parent / "tools" / "helm"
PACKAGE: Final = "helm.sh/helm/v3/cmd/helm"
VERSION: Final = "3.22.0"
"""What the golden files are rendered with; go.mod names the same."""
_FLAGS: Final = (
    "-trimpath",
    f"-ldflags=-s -w -X helm.sh/helm/v3/internal/version.version=v{VERSION}",
)
_TIMEOUT_S: Final = 60
HOW_TO_GET_IT: Final = "build it once with: python -m tests.chart.helm"


def folder() -> Path:
    """Where the built program is kept, for its sums, flags and this Go."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    digest.update("\0".join((*_FLAGS, programs.go_version())).encode())
    return programs.cache_root() / f"helm-{digest.hexdigest()[:16]}"


@cache
def find() -> Path | None:
    """The program; None where it is nowhere."""
    named = os.environ.get("GPU_SHARING_HELM")
    candidates = [Path(named)] if named else []
    shared = os.environ.get("GPU_SHARING_CLUSTER_BIN")
    candidates += [Path(shared) / "helm"] if shared else []
    candidates.append(folder() / "helm")
    on_path = shutil.which("helm")
    candidates += [Path(on_path)] if on_path else []
    return next((path for path in candidates if path.is_file()), None)


def build() -> Path:
    """Build it, unless it is somewhere already."""
    found = find()
    if found is not None:
        return found
    if not programs.go_version():
        sys.exit("helm is built with Go ≥ 1.26, and there is no go on PATH")
    target = folder()
    target.mkdir(parents=True, exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "helm").exists():
            _build(target)
    find.cache_clear()
    return target / "helm"


def _build(target: Path) -> None:
    unfinished = target / f".helm.{os.getpid()}"
    begun = time.monotonic()
    _say("building helm (about three minutes)")
    subprocess.run(
        ["go", "build", *_FLAGS, "-o", str(unfinished), PACKAGE],
        cwd=MODULE,
        env={**os.environ, "GOFLAGS": "-buildvcs=false", "GOWORK": "off"},
        check=True,
    )
    unfinished.rename(target / "helm")
    _say(f"built helm in {time.monotonic() - begun:.0f} s")


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Helm; the exit status is the caller's to judge.

    Raises:
        LookupError: Helm is not on this machine.
    """
    program = find()
    if program is None:
        raise LookupError(f"there is no helm here; {HOW_TO_GET_IT}")
    # Nothing of the user's own Helm takes part.
    return subprocess.run(
        [str(program), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        env={**os.environ, "HELM_NO_PLUGINS": "1", **(env or {})},
    )


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a rendered text, empty documents left out."""
    return [each for each in yaml.safe_load_all(text) if each]


def _say(text: str) -> None:
    print(f"chart tools: {text}", file=sys.stderr, flush=True)  # noqa: T201 - progress


def main(arguments: Sequence[str]) -> None:
    """Build Helm, then run it with these arguments if there are any."""
    program = build()
    if arguments:
        os.execv(program, [str(program), *arguments])  # noqa: S606 - the program just found
    _say(f"helm is {program}")


if __name__ == "__main__":
    main(sys.argv[1:])
