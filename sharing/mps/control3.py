"""Asks one daemon in the words of MPS v3; see ``version3``."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from sharing.mps import version3
from sharing.mps.control import converse
from sharing.mps.errors import MpsError, MpsMisreportError
from sharing.mps.program import DaemonFolders, MpsProgram
from sharing.mps.wanted import ClientGroup, WantedDaemon


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsControl3:
    """One daemon's control channel, in the words of MPS v3."""

    program: MpsProgram
    folders: DaemonFolders
    timeout_s: float

    async def ask(self, *words: str) -> str:
        """The daemon's answer to one command.

        Raises:
            MpsError: The program cannot be run, or the daemon refuses or does not answer in time.
        """
        return await converse(self.program, self.folders, words, timeout_s=self.timeout_s)

    async def limit(self, wanted: WantedDaemon) -> None:
        """Have a namespace with its limits for each size, and read them back.

        A namespace that is wanted no more goes when its last client has gone.

        Raises:
            MpsError: The daemon does not answer, or reports other limits.
        """
        groups = version3.groups_of(wanted)
        there = await self._namespaces()
        for group in groups:
            if group.name not in there:
                await self.ask(*version3.create(group))
            with suppress(MpsMisreportError):  # what it does not report yet, it is told
                await self._verify(group)
                continue
            await self.ask(*version3.limit(group))
            await self._verify(group)
        for name in sorted(there - {group.name for group in groups}):
            with suppress(MpsError):  # it has clients
                await self.ask(*version3.delete(name))

    async def _namespaces(self) -> set[str]:
        table = version3.rows(await self.ask(*version3.LIST_NAMESPACES))
        return {row[0] for row in table}

    async def _verify(self, group: ClientGroup) -> None:
        memory = await self.ask(*version3.get(group.name, "pinned-memory-limit"))
        threads = await self.ask(*version3.get(group.name, "active-thread-percentage"))
        version3.check(group, memory, threads)

    async def probe(self, wanted: WantedDaemon) -> None:
        """See that it answers and still has the limits of its largest size. Raises MpsError."""
        await self._verify(version3.groups_of(wanted)[0])

    async def servers(self) -> tuple[int, ...]:
        """Process ids of its servers. Raises MpsError."""
        return version3.server_pids(await self.ask(*version3.LIST_SERVERS))

    async def clients(self) -> tuple[int, ...]:
        """Process ids of all clients. Raises MpsError."""
        return version3.client_pids(await self.ask(*version3.LIST_CLIENTS))

    async def quit(self) -> None:
        """Tell it to end, with its servers. Raises MpsError."""
        await self.ask(*version3.QUIT)
