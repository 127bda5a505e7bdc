"""Asks one daemon in the words of MPS v3; see ``version3``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
        told = [group for group in groups if not _agrees(group, there)]
        for group in told:
            await self.ask(*version3.limit(group))
        if told:
            _check(groups, await self._namespaces())
        for name in sorted(there.keys() - {group.name for group in groups}):
            with suppress(MpsError):  # it has clients
                await self.ask(*version3.delete(name))

    async def _namespaces(self) -> dict[str, tuple[str, str]]:
        return version3.namespaces(await self.ask(*version3.LIST_NAMESPACES))

    async def probe(self, wanted: WantedDaemon) -> None:
        """See that it answers and still has all limits. Raises MpsError."""
        _check(version3.groups_of(wanted), await self._namespaces())

    async def servers(self) -> tuple[int, ...]:
        """Process ids of its servers. Raises MpsError."""
        return version3.server_pids(await self.ask(*version3.LIST_SERVERS))

    async def clients(self) -> tuple[int, ...]:
        """Process ids of all clients. Raises MpsError."""
        return version3.client_pids(await self.ask(*version3.LIST_CLIENTS))

    async def quit(self) -> None:
        """Tell it to end, with its servers. Raises MpsError."""
        await self.ask(*version3.QUIT)


def _agrees(group: ClientGroup, there: Mapping[str, tuple[str, str]]) -> bool:
    try:
        _check((group,), there)
    except MpsMisreportError:
        return False
    return True


def _check(groups: Iterable[ClientGroup], there: Mapping[str, tuple[str, str]]) -> None:
    """Raise MpsMisreportError unless every group has its limits."""
    for group in groups:
        version3.check(group, there.get(group.name, ("", "")))
