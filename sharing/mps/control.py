"""Asks one daemon, through the program's client side, with a deadline on every question."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sharing.errors import shown
from sharing.mps import protocol
from sharing.mps.errors import MpsError, MpsMisreportError
from sharing.mps.limits import MpsLimits
from sharing.mps.program import DaemonFolders, MpsProgram

_MOST_ANSWER_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsControl:
    """One daemon's control channel."""

    program: MpsProgram
    folders: DaemonFolders
    timeout_s: float

    async def ask(self, command: str) -> str:
        """The daemon's answer to one command, or to several, a line each.

        A refused setting shows only when it is read back.

        Raises:
            MpsError: The program cannot be run, or the daemon does not answer in time.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *self.program.argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=os.environ | self.program.client_env(self.folders),
            )
        except OSError as error:
            raise cannot_run(self.program, error) from error
        try:
            async with asyncio.timeout(self.timeout_s):
                out, err = await process.communicate(f"{command}\n".encode())
        except TimeoutError:
            raise MpsError(
                "MPS daemon",
                f"did not answer {shown(command)} within {self.timeout_s:g} s",
                expected=f"a daemon at {self.folders.pipe}",
            ) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        answer = out[:_MOST_ANSWER_BYTES].decode(errors="replace").strip()
        if process.returncode:
            said = err[:_MOST_ANSWER_BYTES].decode(errors="replace").strip() or answer
            raise MpsError(
                "MPS daemon",
                f"refused {shown(command)}: {said or f'exit code {process.returncode}'}",
                expected=f"a daemon at {self.folders.pipe}",
            )
        return answer

    async def limit(self, limits: MpsLimits) -> None:
        """Have the ceiling in force for servers to come and for those that run, and read it back.

        Running servers first: when the defaults agree, everything does.

        Raises:
            MpsError: The daemon does not answer or does not agree.
        """
        with suppress(MpsMisreportError):  # what it does not report yet, it is told
            await self.verify(limits)
            return
        for pid in await self.servers():
            await self.ask("\n".join(protocol.set_running(pid, limits)))
        await self.ask("\n".join(protocol.set_defaults(limits)))
        await self.verify(limits)

    async def verify(self, limits: MpsLimits) -> None:
        """Read the ceiling back.

        Raises:
            MpsError: The daemon does not answer or reports another ceiling.
        """
        protocol.check_memory(await self.ask(protocol.GET_MEMORY), limits)
        protocol.check_threads(await self.ask(protocol.GET_THREADS), limits)

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


def cannot_run(program: MpsProgram, error: OSError) -> MpsError:
    """The error of a program that is not there or may not run."""
    return MpsError(
        f"program {program.argv[0]}",
        f"cannot be run: {error.strerror or error}",
        expected="NVIDIA's MPS control program, which comes with the driver",
        fix="install it, or make the driver's folder part of PATH",
    )
