"""Commands that a test runs, inside a box or beside it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_NAMESPACES: Final = ("--mount", "--net", "--uts", "--ipc", "--pid", "--cgroup")


def inside(pid: int, command: Sequence[str]) -> list[str]:
    """The command line that runs a command in the namespaces of a process."""
    return ["nsenter", "--target", str(pid), *_NAMESPACES, "--", *command]


def output_of(command: Sequence[str], timeout_s: float, folder: Path | None = None) -> str:
    """A command's standard output; ``folder`` takes what kubectl caches.

    Raises:
        subprocess.CalledProcessError: It failed; what it said is in a note.
    """
    environment = {**os.environ, "KUBECACHEDIR": str(folder)} if folder else None
    try:
        return subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=environment,
        ).stdout
    except subprocess.CalledProcessError as error:
        error.add_note(f"it said: {error.stdout}{error.stderr}")
        raise
