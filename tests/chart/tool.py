"""Programs that only the chart's tests need: Helm and promtool, from where the cluster's are."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster import programs
from tests.cluster.programs import HELM_VERSION, HOW_TO_GET_THEM

__all__ = ["HELM", "HELM_VERSION", "HOW_TO_GET_IT", "PROMTOOL", "Tool"]

_TIMEOUT_S: Final = 120
HOW_TO_GET_IT: Final = f"build it once with: {HOW_TO_GET_THEM}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One program, by its name."""

    name: str

    def find(self) -> Path | None:
        """The program; None where it is nowhere."""
        try:
            return programs.find(self.name)
        except programs.ProgramMissingError:
            return None

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it; the exit status is the caller's to judge.

        Raises:
            LookupError: It is not on this machine.
        """
        program = self.find()
        if program is None:
            raise LookupError(f"there is no {self.name} here; {HOW_TO_GET_IT}")
        with tempfile.TemporaryDirectory(prefix="gs-") as own:
            return subprocess.run(
                [str(program), *arguments],
                check=False,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                # Nothing of the user's own takes part, and nothing is left with the user.
                env={**os.environ, "HELM_NO_PLUGINS": "1", "HOME": own, **_folders(own)},
            )


def _folders(own: str) -> dict[str, str]:
    names = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "KUBECACHEDIR")
    return {name: f"{own}/{name.lower()}" for name in names}


HELM: Final = Tool(name="helm")
PROMTOOL: Final = Tool(name="promtool")
