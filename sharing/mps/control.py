"""Asks one daemon, through the program's client side, with a deadline on every question."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from sharing.errors import shown
from sharing.mps import protocol
from sharing.mps.errors import MpsError, MpsMisreportError
from sharing.mps.limits import MpsLimits
from sharing.mps.program import DaemonFolders, MpsProgram
from sharing.mps.wanted import WantedDaemon

_MOST_ANSWER_BYTES: Final = 1 << 16


class Control(Protocol):
    """One daemon's control channel, whatever it speaks. All methods raise MpsError."""

    async def limit(self, wanted: WantedDaemon) -> None:
        """Have the limits in force, and read them back."""
        ...

    async def probe(self, wanted: WantedDaemon) -> None:
        """See that it answers and still has its limits.

        Raises:
            MpsMisreportError: It has others.
        """
        ...

    async def servers(self) -> tuple[int, ...]:
        """Process ids of the daemon's servers; there is none before the first client."""
        ...

    async def clients(self) -> tuple[int, ...]:
        """Process ids of all clients."""
        ...

    async def quit(self) -> None:
        """Tell it to end, with its servers."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsControl:
    """One daemon's control channel, in the words of MPS v2."""

    program: MpsProgram
    folders: DaemonFolders
    timeout_s: float

    async def ask(self, command: str) -> str:
        """The daemon's answer to one command, or to several, a line each.

        A refused setting shows only when it is read back.

        Raises:
            MpsError: The program cannot be run, or the daemon does not answer in time.
        """
        return await converse(self.program, self.folders, said=command, timeout_s=self.timeout_s)

    async def limit(self, wanted: WantedDaemon) -> None:
        """Have the ceiling in force for servers to come and for those that run, and read it back.

        Running servers first: when the defaults agree, everything does.

        Raises:
            MpsError: The daemon does not answer or does not agree.
        """
        limits = wanted.limits
        with suppress(MpsMisreportError):  # what it does not report yet, it is told
            await self._verify(limits)
            return
        for pid in await self.servers():
            await self.ask("\n".join(protocol.set_running(pid, limits)))
        await self.ask("\n".join(protocol.set_defaults(limits)))
        await self._verify(limits)

    async def _verify(self, limits: MpsLimits) -> None:
        """Read the ceiling back.

        Raises:
            MpsError: The daemon does not answer or reports another ceiling.
        """
        protocol.check_memory(await self.ask(protocol.GET_MEMORY), limits)
        protocol.check_threads(await self.ask(protocol.GET_THREADS), limits)

    async def probe(self, wanted: WantedDaemon) -> None:
        """See that it answers and still has its thread ceiling. Raises MpsError."""
        protocol.check_threads(await self.ask(protocol.GET_THREADS), wanted.limits)

    async def servers(self) -> tuple[int, ...]:
        """Process ids of the daemon's servers; there is none before the first client.

        Raises:
            MpsError: The daemon does not answer.
        """
        return protocol.parse_pids(await self.ask(protocol.GET_SERVERS))

    async def clients(self) -> tuple[int, ...]:
        """Process ids of all clients.

        Raises:
            MpsError: The daemon does not answer.
        """
        found: set[int] = set()
        for pid in await self.servers():
            found.update(protocol.parse_pids(await self.ask(protocol.get_clients(pid))))
        return tuple(sorted(found))

    async def quit(self) -> None:
        """Tell it to end, with its servers. Raises MpsError."""
        await self.ask(protocol.QUIT)


async def converse(
    program: MpsProgram,
    folders: DaemonFolders,
    words: Sequence[str] = (),
    *,
    said: str = "",
    timeout_s: float,
) -> str:
    """What the program's client side prints.

    Args:
        program: How to run it.
        folders: Where the daemon is.
        words: Its command line.
        said: Its standard input, a command a line.
        timeout_s: For everything.

    Raises:
        MpsError: It cannot be run, refuses, or the daemon does not answer in time.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *program.argv,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | program.client_env(folders),
        )
    except OSError as error:
        raise cannot_run(program, error) from error
    command = said or " ".join(words)
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate(f"{said}\n".encode() if said else b"")
    except TimeoutError:
        raise MpsError(
            "MPS daemon",
            f"did not answer {shown(command)} within {timeout_s:g} s",
            expected=f"a daemon at {folders.pipe}",
        ) from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    answer = out[:_MOST_ANSWER_BYTES].decode(errors="replace").strip()
    if process.returncode:
        words_of_error = err[:_MOST_ANSWER_BYTES].decode(errors="replace").strip() or answer
        raise MpsError(
            "MPS daemon",
            f"refused {shown(command)}: {words_of_error or f'exit code {process.returncode}'}",
            expected=f"a daemon at {folders.pipe}",
        )
    return answer


def cannot_run(program: MpsProgram, error: OSError) -> MpsError:
    """The error of a program that is not there or may not run."""
    return MpsError(
        f"program {program.argv[0]}",
        f"cannot be run: {error.strerror or error}",
        expected="NVIDIA's MPS control program, which comes with the driver",
        fix="install it, or make the driver's folder part of PATH",
    )
