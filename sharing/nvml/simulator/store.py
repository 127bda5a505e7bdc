"""The one file that holds a simulated machine, shared by processes.

Writers hold a lock and replace the file in one step, so readers never lock and never see half a
state. A writer that is killed leaves the old state, as a driver call that never happened.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from sharing.errors import InputError, UnavailableError
from sharing.nvml.simulator.state import FORMAT, Machine

_MACHINE: Final = TypeAdapter(Machine)
_LONGEST_FILE: Final = 8 << 20
Result = TypeVar("Result")


class Store:
    """A state file, read through a cache."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._machine: Machine | None = None
        self._guard = threading.Lock()

    def read(self) -> Machine:
        """The machine as it is now; parsed again only if the file was replaced.

        Raises:
            UnavailableError: The file cannot be read.
            InputError: The file holds no simulated machine.
        """
        with self._guard:
            seen = self._stamp()
            if self._machine is None or seen != self._seen:
                self._machine = _decode(self.path, self._bytes())
                self._seen = seen
            return self._machine

    def change(self, step: Callable[[Machine], tuple[Machine, Result]]) -> Result:
        """Replace the machine by what a function makes of it, while nobody else can.

        Whatever the function raises leaves the machine as it was.
        """
        with self._locked():
            before = self.read()
            after, result = step(before)
            if after is not before:
                self._replace(after)
            return result

    def create(self, machine: Machine) -> None:
        """Write the first state, over whatever was there."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._replace(machine)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # A lock file of its own: the state file's inode changes with every write.
        try:
            descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _unavailable(self.path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _replace(self, machine: Machine) -> None:
        # No fsync: a simulated driver need not outlive a power cut, only its processes.
        try:
            # One name suffices under the lock, and a killed writer leaves one file at most.
            temporary = self.path.with_name(f".{self.path.name}.new")
            temporary.write_bytes(orjson.dumps(machine, option=orjson.OPT_INDENT_2))
            # File times are as coarse as the kernel's tick and inodes are reused, so two writes
            # within a tick could look alike to a reader; a time of our own always grows.
            stamp = max(time.time_ns(), self._last_stamp() + 1)
            os.utime(temporary, ns=(stamp, stamp))
            temporary.replace(self.path)
        except OSError as error:
            raise _unavailable(self.path, error) from error

    def _last_stamp(self) -> int:
        try:
            return self.path.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = os.stat(self.path)  # noqa: PTH116 - Path.stat costs twice the time here
        except OSError as error:
            raise _unavailable(self.path, error) from error
        return (found.st_ino, found.st_mtime_ns, found.st_size)

    def _bytes(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                return file.read(_LONGEST_FILE)
        except OSError as error:
            raise _unavailable(self.path, error) from error


def _decode(path: Path, content: bytes) -> Machine:
    subject = f"state file {path}"
    remedy = "make a new one with 'gpu-sharing gpu --state FILE create'"
    try:
        raw = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InputError(subject, f"is no JSON: {error}", fix=remedy) from error
    found = raw.get("format") if isinstance(raw, dict) else None
    if found != FORMAT:
        raise InputError(subject, f"has format {found!r}", expected=f"format {FORMAT}", fix=remedy)
    try:
        machine = _MACHINE.validate_python(raw)
        for gpu in machine.gpus:
            _ = gpu.model
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(subject, f"{place}: {first['msg']}", fix=remedy) from error
    except InputError as error:
        raise error.about(subject) from error
    return machine


def _unavailable(path: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"state file {path}",
        error.strerror or str(error),
        fix="name a simulated machine's file, or make one",
        example="gpu-sharing gpu --state gpus.json create 8xH100-80GB",
    )
