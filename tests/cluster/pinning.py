"""Pins a version of Kubernetes: writes the Go module that one of its control planes is built from.

    python -m tests.cluster.pinning 1.36.3

writes ``tools/kubernetes-1.36`` with ``go.mod`` and ``go.sum``, which are committed; nothing else
ever resolves versions. Kubernetes requires its staging modules at v0.0.0, which does not exist, so
each of them is replaced by the v0.Y.Z that was published with v1.Y.Z.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.cluster.golang import HOW_TO_GET_GO, go_program
from tests.cluster.programs import TOOLS

PROGRAMS: Final = ("kube-apiserver",)
"""What tier a needs of a version besides the one that all tiers run on."""
_STAGING: Final = re.compile(r"^\s*(k8s\.io/\S+) => \./staging/", re.MULTILINE)
_LANGUAGE: Final = re.compile(r"^(go \S+|godebug .*)$", re.MULTILINE)


def module_text(version: str, upstream: str) -> str:
    """The ``go.mod`` that builds programs of a version, before it is tidied (pure).

    Args:
        version: Of Kubernetes, such as ``1.36.3``.
        upstream: The text of Kubernetes' own ``go.mod`` at that version.
    """
    published = "v0." + version.removeprefix("1.")
    tools = "\n".join(f"tool k8s.io/kubernetes/cmd/{name}" for name in PROGRAMS)
    replaced = "\n".join(
        f"\t{name} => {name} {published}" for name in sorted(_STAGING.findall(upstream))
    )
    language = "\n\n".join(_LANGUAGE.findall(upstream))
    return (
        f"module cluster\n\n{language}\n\n{tools}\n\n"
        f"require k8s.io/kubernetes v{version}\n\nreplace (\n{replaced}\n)\n"
    )


def pin(version: str) -> Path:
    """Write a version's module; needs the module proxy. Returns its folder."""
    go = go_program()
    if go is None:
        sys.exit(HOW_TO_GET_GO)
    asked = ["mod", "download", "-json", f"k8s.io/kubernetes@v{version}"]
    said = json.loads(_run(go, asked, TOOLS))
    folder = TOOLS / f"kubernetes-{version.rpartition('.')[0]}"
    folder.mkdir(exist_ok=True)
    (folder / "go.mod").write_text(module_text(version, Path(said["GoMod"]).read_text("utf-8")))
    _run(go, ["mod", "tidy"], folder)
    return folder


def _run(go: str, arguments: list[str], folder: Path) -> str:
    done = subprocess.run(
        [go, *arguments], cwd=folder, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


if __name__ == "__main__":
    for each in sys.argv[1:]:
        sys.stdout.write(f"{pin(each)}\n")
