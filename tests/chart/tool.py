"""A program that only the chart's tests need: found, or built from its pinned Go module and kept.

``python -m tests.chart.tool`` builds them; tests never start a build behind a person's back. The
cache is that of the cluster's programs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster import programs

MODULES: Final = Path(__file__).parent / "tools"
_TIMEOUT_S: Final = 60
HOW_TO_GET_IT: Final = "build it once with: python -m tests.chart.tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One program and what it is built from.

    Attributes:
        name: Of the program and of its module's folder.
        package: The Go package.
        flags: For ``go build``.
    """

    name: str
    package: str
    flags: tuple[str, ...]

    @property
    def module(self) -> Path:
        """The folder with ``go.mod`` and ``go.sum``."""
        return MODULES / self.name

    def folder(self) -> Path:
        """Where it is kept once built, for its sums, flags and this Go."""
        digest = hashlib.sha256()
        for name in ("go.mod", "go.sum"):
            digest.update((self.module / name).read_bytes())
        digest.update("\0".join((*self.flags, programs.go_version())).encode())
        return programs.cache_root() / f"{self.name}-{digest.hexdigest()[:16]}"

    def find(self) -> Path | None:
        """The program; None where it is nowhere."""
        shared = os.environ.get("GPU_SHARING_CLUSTER_BIN")
        on_path = shutil.which(self.name)
        candidates = [Path(shared) / self.name] if shared else []
        candidates.append(self.folder() / self.name)
        candidates += [Path(on_path)] if on_path else []
        return next((path for path in candidates if path.is_file()), None)

    def build(self) -> Path:
        """Build it, unless it is somewhere already."""
        found = self.find()
        if found is not None:
            return found
        if not programs.go_version():
            sys.exit(f"{self.name} is built with Go ≥ 1.26, and there is no go on PATH")
        target = self.folder()
        target.mkdir(parents=True, exist_ok=True)
        with (target / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (target / self.name).exists():
                self._build(target)
        return target / self.name

    def _build(self, target: Path) -> None:
        unfinished = target / f".{self.name}.{os.getpid()}"
        begun = time.monotonic()
        _say(f"building {self.name} (some minutes)")
        subprocess.run(
            ["go", "build", *self.flags, "-o", str(unfinished), self.package],
            cwd=self.module,
            env={**os.environ, "GOFLAGS": "-buildvcs=false", "GOWORK": "off"},
            check=True,
        )
        unfinished.rename(target / self.name)
        _say(f"built {self.name} in {time.monotonic() - begun:.0f} s")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it; the exit status is the caller's to judge.

        Raises:
            LookupError: It is not on this machine.
        """
        program = self.find()
        if program is None:
            raise LookupError(f"there is no {self.name} here; {HOW_TO_GET_IT}")
        return subprocess.run(
            [str(program), *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env={**os.environ, "HELM_NO_PLUGINS": "1"},  # nothing of the user's own takes part
        )


HELM_VERSION: Final = "3.22.0"
"""What the golden files are rendered with; its go.mod names the same."""
HELM: Final = Tool(
    name="helm",
    package="helm.sh/helm/v3/cmd/helm",
    flags=(
        "-trimpath",
        f"-ldflags=-s -w -X helm.sh/helm/v3/internal/version.version=v{HELM_VERSION}",
    ),
)
PROMTOOL: Final = Tool(
    name="promtool",
    package="github.com/prometheus/prometheus/cmd/promtool",
    # Without service discovery: half of its dependencies, none of it needed to test rules.
    flags=("-trimpath", "-tags=remove_all_sd", "-ldflags=-s -w"),
)


def _say(text: str) -> None:
    print(f"chart tools: {text}", file=sys.stderr, flush=True)  # noqa: T201 - progress


if __name__ == "__main__":
    for each in (HELM, PROMTOOL):
        _say(f"{each.name} is {each.build()}")
