"""A program of a trial does not outlive the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def child(parent: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli.trial.child", str(parent), "--version"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_child_is_the_command_like_any_other() -> None:
    assert child(os.getpid()).returncode == 0


def test_a_child_whose_parent_has_gone_is_killed_at_once() -> None:
    done = child(1 if os.getppid() != 0 else 2)

    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


def test_a_child_dies_with_its_parent() -> None:
    """The parent names its child, which waits for a signal, and is killed."""
    script = (
        "import os, subprocess, sys\n"
        "words = [sys.executable, '-c', 'import os, signal, sys\\n'\n"
        "  'from cli.trial.child import die_with_parent\\n'\n"
        "  'die_with_parent(int(sys.argv[1]))\\n'\n"
        "  'print(os.getpid(), flush=True)\\n'\n"
        "  'signal.pause()', str(os.getpid())]\n"
        "subprocess.run(words)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        line = parent.stdout.readline()
        parent.kill()
        assert int(line) > 0
        assert parent.stdout.read() == b""  # the child held it open until it ended
