"""A daemon as a process: started apart from us, found again after our own restart, ended.

A daemon has a session of its own and writes to a file, so it and the work of its clients live on
when the agent is replaced; the next agent finds it by its PID file and takes it over.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from sharing.mps import version3
from sharing.mps.control import cannot_run
from sharing.mps.errors import MpsError
from sharing.mps.program import VERSION_ENV, DaemonFolders, MpsProgram, MpsVersion
from sharing.mps.selinux import open_to_pods
from sharing.mps.wanted import WantedDaemon

_SAID_BYTES = 4096


class _Detached(subprocess.Popen[bytes]):
    """A child that lives on when its handle is gone; asyncio's own handles kill theirs."""

    def __del__(self) -> None:
        """No warning about a child that still runs: it is meant to."""


class DaemonProcess:
    """One living daemon, child or not.

    Args:
        pid: Its process id, which is its group's too.
        version: What it speaks.
        child: Its handle if we started it, so that it is reaped.

    Raises:
        OSError: The process is gone already.
    """

    def __init__(self, pid: int, version: MpsVersion, child: _Detached | None = None) -> None:
        self.pid = pid
        self.version = version
        self._child = child
        self._ended = asyncio.Event()
        self._pidfd = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)

    def _on_end(self) -> None:
        if self._child is not None:
            self._child.poll()  # reaps it
        self._ended.set()
        self.forget()

    def forget(self) -> None:
        """Watch it no more; it lives on."""
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    @property
    def exit_code(self) -> int | None:
        """How it ended, where that is known: not for a daemon that another agent started."""
        return None if self._child is None else self._child.returncode

    async def ended(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; False when time ran out."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        return self._ended.is_set()

    async def kill(self, patience_s: float) -> None:
        """End it and its servers: asked first, then forced."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._ended.is_set():
                break
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
            await self.ended(patience_s)
        # Its servers are in its group and may outlive it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.forget()


async def start(program: MpsProgram, folders: DaemonFolders, wanted: WantedDaemon) -> DaemonProcess:
    """Start a daemon for one device.

    Raises:
        MpsError: The program cannot be run, or its folders cannot be made.
    """
    child = await asyncio.to_thread(_spawn, program, folders, wanted)
    return DaemonProcess(child.pid, program.version, child)


def _spawn(program: MpsProgram, folders: DaemonFolders, wanted: WantedDaemon) -> _Detached:
    env = program.daemon_env(folders, wanted.device_uuid, wanted.limits)
    try:
        make_folders(folders)
        if program.version is MpsVersion.V3:
            folders.configuration.write_text(version3.configuration(wanted), "utf-8")
        output = folders.output.open("wb")
    except OSError as error:
        raise MpsError(
            f"folder {folders.pipe.parent}",
            f"cannot be made: {error.strerror or error}",
            fix="mount the MPS folder into the agent's container, writable",
        ) from error
    with output:
        try:
            return _Detached(
                program.daemon_argv(folders),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | env,
                start_new_session=True,
            )
        except OSError as error:
            raise cannot_run(program, error) from error


def find(program: MpsProgram, folders: DaemonFolders) -> DaemonProcess | None:
    """The daemon that serves these folders already, if one lives."""
    try:
        pid = int(folders.pid_file.read_text().strip())
        if pid > 1 and _serves(pid, program, folders):
            return DaemonProcess(pid, _version(pid))
    except (OSError, ValueError):  # no file, no such process, or a file of nonsense: none lives
        pass
    return None


def _serves(pid: int, program: MpsProgram, folders: DaemonFolders) -> bool:
    """Whether a process is this program on these folders; PIDs are used again."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    env = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    pipe = f"CUDA_MPS_PIPE_DIRECTORY={folders.pipe}".encode()
    name = Path(program.argv[-1]).name.encode()
    return pipe in env and any(word.rpartition(b"/")[2] == name for word in command)


def _version(pid: int) -> MpsVersion:
    """What a daemon speaks that an earlier agent started, by its variables.

    They are readable only a moment after a program has begun, so this is not asked of our own.
    """
    try:
        env = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return MpsVersion.V2  # it is gone already; its end is noticed by itself
    return MpsVersion.V3 if f"{VERSION_ENV}=3".encode() in env else MpsVersion.V2


def make_folders(folders: DaemonFolders) -> None:
    """Have the folders, usable by pods of any user."""
    folders.pipe.mkdir(parents=True, exist_ok=True)
    folders.log.mkdir(parents=True, exist_ok=True)
    ours = folders.pipe.parent
    for path in (ours.parent, ours, folders.pipe, folders.log):
        path.chmod(0o755)
    if folders.shm is not None:
        folders.shm.mkdir(parents=True, exist_ok=True)
        folders.shm.chmod(0o1777)
        open_to_pods(folders.shm)
    open_to_pods(folders.pipe)


def clear_folders(folders: DaemonFolders) -> None:
    """Remove what a daemon that ended leaves behind; its log stays for people to read."""
    for path in (folders.pipe, folders.shm):
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)


def last_words(folders: DaemonFolders) -> str:
    """The last line that the daemon wrote; empty if none."""
    try:
        said = folders.output.read_bytes()[-_SAID_BYTES:].decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else ""
