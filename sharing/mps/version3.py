"""The words of MPS v3: its configuration file, its tables, and where its clients connect; pure.

One daemon has one server of ours, and the server a namespace for each share size, with limits of
its own. A client belongs to the namespace whose folder it connects through, and a container is
given that folder only. So limits of mixed sizes are enforced by the daemon, where v2 has one
ceiling and trusts the client's variables below it.

Source: NVIDIA MPS documentation, "MPS v3 Interface", "MPS v3 Configuration File" and "MPS v3
Namespaces"; driver r615 or later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sharing.errors import shown
from sharing.mps.errors import MpsError
from sharing.mps.protocol import check_memory, check_threads
from sharing.mps.wanted import ClientGroup, WantedDaemon

SERVER: Final = "shares"
DEFAULT: Final = "default"
"""The namespace that every server has."""
LEAST_DRIVER: Final = 615
"""The first driver branch with MPS v3."""
CSV: Final = "--format=csv,noheader"
QUIT: Final = ("--quit",)
LIST_SERVERS: Final = ("server", "list", SERVER, CSV)
LIST_CLIENTS: Final = ("client", "list", f"--server={SERVER}", CSV)
LIST_NAMESPACES: Final = ("namespace", "list", f"--server={SERVER}", CSV)

_NAME: Final = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)
_PID_COLUMN: Final = 2
_MEMORY_COLUMN: Final = 3
_THREADS_COLUMN: Final = 4
_MOST_ROWS: Final = 4096


def groups_of(wanted: WantedDaemon) -> tuple[ClientGroup, ...]:
    """Every namespace that the server shall have; the default one is the ceiling.

    Raises:
        MpsError: A size cannot be the name of a namespace.
    """
    for group in wanted.groups:
        if not _NAME.fullmatch(group.name) or group.name == DEFAULT:
            raise MpsError(
                "MPS namespace",
                f"{shown(group.name)} is no name",
                expected="lowercase letters, digits and _, at most 64 of them",
                example="1of4",
            )
    ceiling = ClientGroup(
        name=DEFAULT,
        memory_mib=wanted.limits.memory_mib,
        thread_percentage=wanted.limits.thread_percentage,
    )
    return (ceiling, *sorted(wanted.groups))


def configuration(wanted: WantedDaemon) -> str:
    """The daemon's configuration file, so that no server ever starts without limits.

    Memory is accounted by container (``memacct``), so that caps set for a container's cgroup hold.
    """
    lines = [
        'schema_version = "1.0"',
        "",
        f"[servers.{SERVER}]",
        f'allowed_devices = "{wanted.device_uuid}"',
        *_limits(groups_of(wanted)[0]),
        "uid = 0",
    ]
    for group in groups_of(wanted)[1:]:
        lines += ["", f"[servers.{SERVER}.namespaces.{group.name}]", *_limits(group)]
    lines += ["", "[features.memacct]", "enabled = true"]
    return "\n".join(lines) + "\n"


def _limits(group: ClientGroup) -> tuple[str, str]:
    return (
        f'pinned_memory_limit = "{group.memory_mib}M"',
        f'active_thread_percentage = "{group.thread_percentage}"',
    )


def client_folder(pipe: Path, size: str) -> Path:
    """The folder through which containers of a share size connect."""
    return pipe / SERVER / size


def create(group: ClientGroup) -> tuple[str, ...]:
    """The command that makes a namespace."""
    return ("namespace", "create", group.name, f"--server={SERVER}")


def delete(group: str) -> tuple[str, ...]:
    """The command that removes a namespace that has no clients; refused where it has."""
    return ("namespace", "delete", group, f"--server={SERVER}")


def limit(group: ClientGroup) -> tuple[str, ...]:
    """The command that sets a namespace's limits; the default namespace has its server's."""
    module = (
        ("server", "set", SERVER) if group.name == DEFAULT else ("namespace", "set", group.name)
    )
    whose = () if group.name == DEFAULT else (f"--server={SERVER}",)
    return (
        *module,
        *whose,
        f"--pinned-memory-limit={group.memory_mib}M",
        f"--active-thread-percentage={group.thread_percentage}",
    )


def check(group: ClientGroup, reported: tuple[str, str]) -> None:
    """Raise unless the daemon reports what the group was given.

    Args:
        group: The group.
        reported: Memory and threads, as the daemon writes them.

    Raises:
        MpsMisreportError: It reports something else.
    """
    memory, threads = reported
    check_memory(memory, group.limits)
    check_threads(threads, group.limits)


def namespaces(answer: str) -> dict[str, tuple[str, str]]:
    """What the daemon reports of each namespace: memory and threads.

    Raises:
        MpsError: The answer is no table of namespaces.
    """
    found = {}
    for row in rows(answer):
        if len(row) <= _THREADS_COLUMN:
            raise MpsError("MPS daemon", f"answers {shown(answer)}", expected="one namespace a row")
        found[row[0]] = (row[_MEMORY_COLUMN], row[_THREADS_COLUMN])
    return found


def rows(answer: str) -> tuple[Sequence[str], ...]:
    """The rows of a table; a value with a comma, such as a command line, is cut at it.

    Raises:
        MpsError: There are more than there can be.
    """
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    if len(lines) > _MOST_ROWS:
        raise MpsError("MPS daemon", f"answers {len(lines)} rows", expected="a table")
    return tuple(tuple(cell.strip() for cell in line.split(",")) for line in lines)


def server_pids(answer: str) -> tuple[int, ...]:
    """Process ids of the servers that run; one that has not started has none.

    Raises:
        MpsError: The answer is no table of servers.
    """
    return _pids(answer, _PID_COLUMN, may_lack=True)


def client_pids(answer: str) -> tuple[int, ...]:
    """Process ids of the clients.

    Raises:
        MpsError: The answer is no table of clients.
    """
    return _pids(answer, 0, may_lack=False)


def _pids(answer: str, column: int, *, may_lack: bool) -> tuple[int, ...]:
    found: set[int] = set()
    for row in rows(answer):
        cell = row[column] if len(row) > column else ""
        if cell.isascii() and cell.isdecimal():
            found.add(int(cell))
        elif not (may_lack and cell == "-"):
            raise MpsError("MPS daemon", f"answers {shown(answer)}", expected="one process a row")
    return tuple(sorted(found - {0}))
