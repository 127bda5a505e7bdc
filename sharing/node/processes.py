"""Where a process lies: the kernel's word, or a simulated machine's."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from sharing.node.cgroup import MOST_CHARACTERS, Place, places_of

PROC: Final = Path("/proc")


class Whereabouts(Protocol):
    """Finds the pods that processes lie in."""

    def of(self, pids: frozenset[int]) -> Mapping[int, tuple[Place, ...]]:
        """The pods of each process, from the outside in; one that has ended is left out."""
        ...


class ByProc:
    """Asks the kernel. Needs the host's pid namespace.

    Args:
        folder: Where the kernel's files are.
    """

    def __init__(self, folder: Path = PROC) -> None:
        self._folder = folder

    def of(self, pids: frozenset[int]) -> Mapping[int, tuple[Place, ...]]:
        """See ``Whereabouts.of``."""
        found: dict[int, tuple[Place, ...]] = {}
        for pid in sorted(pids):
            try:
                with (self._folder / str(pid) / "cgroup").open("rb") as file:
                    text = file.read(MOST_CHARACTERS).decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended meanwhile
            except OSError:
                text = ""  # not ours to read: it counts as a process of the node
            found[pid] = places_of(text)
        return found


class Simulated:
    """The cgroups that a simulated machine's processes pretend to be in.

    Args:
        read: The pretended cgroup path of each process by pid.
    """

    def __init__(self, read: Callable[[], Mapping[int, str]]) -> None:
        self._read = read

    def of(self, pids: frozenset[int]) -> Mapping[int, tuple[Place, ...]]:
        """See ``Whereabouts.of``."""
        paths = self._read()
        return {pid: places_of(f"0::{paths[pid]}\n") for pid in sorted(pids) if pid in paths}


def whereabouts(simulate: Path | None) -> Whereabouts:
    """How to find the pods of this node's processes, real or simulated."""
    if simulate is None:
        return ByProc()
    from sharing.nvml.simulator.store import Store

    store = Store(simulate)

    def paths() -> dict[int, str]:
        return {one.pid: one.cgroup for gpu in store.read().gpus for one in gpu.processes}

    return Simulated(paths)


def own_pods(folder: Path = PROC) -> frozenset[str]:
    """The pods that this program itself lies in, and its node, if that is a container."""
    places = ByProc(folder).of(frozenset({os.getpid()})).get(os.getpid(), ())
    return frozenset(one.pod_uid for one in places)
