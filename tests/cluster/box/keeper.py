"""Stands between the test run and a box, so that the box goes when either of them does.

    python -m tests.cluster.box.keeper FOLDER LISTENER READY

Three nets: the end of standard input, which comes also when the test run is killed, ends the box;
the kernel kills ``unshare`` when this process ends; and the box when ``unshare`` ends. Then the
cgroup folders are removed, which works once the last process is gone. A test run that ends without
the word ``stop`` gets its folder removed too, since nobody is left to look at it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from tests.cluster import leftovers
from tests.cluster.box import cgroups
from tests.cluster.daemons import dying_with_parent
from tests.cluster.waiting import until

STOP: Final = b"stop\n"
_END_TIMEOUT_S: Final = 20.0
_UNSHARE: Final = (
    "unshare", "--mount", "--cgroup", "--net", "--uts", "--ipc", "--pid", "--fork",
    "--kill-child=SIGKILL", "--mount-proc",
)  # fmt: skip


def main() -> None:
    """Run one box until it or the test run ends."""
    folder, *descriptors = sys.argv[1:]
    cgroups.sweep()
    leftovers.sweep()
    leftovers.own(Path(folder))
    group = cgroups.Group.create()
    try:
        group.enter()  # what is started from here begins inside
        child = _start(folder, descriptors)
        group.leave()
        told, orphaned = threading.Event(), threading.Event()
        threading.Thread(target=_obey, args=(child, told, orphaned), daemon=True).start()
        code = child.wait()
    finally:
        until("the box's cgroups are empty", group.remove, timeout_s=_END_TIMEOUT_S)
    if orphaned.is_set():
        shutil.rmtree(folder, ignore_errors=True)
    elif not told.is_set():
        sys.exit(f"the box ended by itself with {code}")


def _start(folder: str, descriptors: list[str]) -> subprocess.Popen[bytes]:
    command = [*_UNSHARE, sys.executable, "-m", "tests.cluster.box.init", folder, *descriptors]
    passed = [int(descriptor) for descriptor in descriptors]
    with Path(folder, "logs", "init.log").open("ab") as log:
        child = subprocess.Popen(
            dying_with_parent(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=passed,
        )
    for descriptor in passed:
        os.close(descriptor)  # the reader of the pipe must see when the box ends
    return child


def _obey(child: subprocess.Popen[bytes], told: threading.Event, orphaned: threading.Event) -> None:
    """Wait for the test run's word, or its end.

    By descriptor: a thread that waits in a buffered reader breaks the interpreter's shutdown.
    """
    heard = b""
    while not heard.endswith(b"\n") and (more := os.read(sys.stdin.fileno(), len(STOP))):
        heard += more
    (told if heard == STOP else orphaned).set()
    child.kill()


if __name__ == "__main__":
    main()
