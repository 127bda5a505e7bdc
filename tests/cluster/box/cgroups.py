"""The box's own folder in every cgroup v1 hierarchy.

The cgroup namespace starts there, so everything that a kubelet and a container runtime make lies
in one tree that can be removed afterwards. Folders carry the process that made them, with its start
time since process ids come again: a box that was killed hard is swept by the next one.

Source: cgroups(7), cgroup_namespaces(7).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.cluster.identity import identity_of, is_alive

PREFIX: Final = "gs-box-"
_CPUSET: Final = ("cpuset.cpus", "cpuset.mems")


def parents(cgroup: str, mountinfo: str) -> dict[str, Path]:
    """Our folder in each hierarchy, by controllers, from the texts of the two files in /proc."""
    mounts = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup":
            root, mount = left.split()[3:5]
            mounts[mount] = (root.rstrip("/"), set(options.split(",")))
    folders = {}
    for line in cgroup.splitlines():
        number, controllers, path = line.split(":", 2)
        for mount, (root, mounted) in mounts.items():
            if number != "0" and set(controllers.split(",")) <= mounted:
                # A container without a cgroup namespace sees its part mounted, and a path from
                # the machine's root.
                below = path.removeprefix(root) if f"{path}/".startswith(f"{root}/") else path
                folders[controllers] = Path(mount + below)
    return folders


def here() -> dict[str, Path]:
    """This process's folder in each hierarchy."""
    return parents(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())


class Group:
    """One box's folders."""

    def __init__(self, name: str, above: dict[str, Path]) -> None:
        self.name = name
        self._above = above

    @classmethod
    def create(cls) -> Group:
        """Make the folders of this process's box."""
        made = cls(f"{PREFIX}{identity_of(os.getpid())}", here())
        for controllers, parent in made._above.items():
            folder = parent / made.name
            folder.mkdir()
            if "cpuset" in controllers.split(","):
                for key in _CPUSET:  # a new cpuset is empty and takes no process
                    (folder / key).write_text((parent / key).read_text())
        return made

    def enter(self) -> None:
        """Move this process in, so that what it starts begins there."""
        for parent in self._above.values():
            (parent / self.name / "cgroup.procs").write_text(str(os.getpid()))

    def leave(self) -> None:
        """Move this process back."""
        for parent in self._above.values():
            (parent / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> bool:
        """Remove the folders, deepest first; False while a process is in one of them."""
        gone = True
        for parent in self._above.values():
            gone = remove_tree(parent / self.name) and gone
        return gone


def remove_tree(top: Path) -> bool:
    """Remove a cgroup and all below; False if one of them still has a process."""
    gone = True
    for folder in _deepest_first(top):
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            gone = False
    return gone


def _deepest_first(top: Path) -> Iterator[Path]:
    for folder, _, _ in os.walk(top, topdown=False):
        yield Path(folder)


def sweep() -> list[str]:
    """Remove the folders of boxes whose process is gone; returns their names."""
    names = {folder.name for parent in here().values() for folder in parent.glob(f"{PREFIX}*")}
    dead = [name for name in sorted(names) if not is_alive(name.removeprefix(PREFIX))]
    for name in dead:
        Group(name, here()).remove()
    return dead
