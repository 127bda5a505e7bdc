"""One replica of the webhook as a process of this machine, and the address that it listens on."""

from __future__ import annotations

import signal
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sharing.errors import UnavailableError
from tests.cluster.waiting import eventually

END_S: Final = 30.0


def own_address() -> str:
    """An address of this machine that an EndpointSlice may name, so not a loopback one.

    Raises:
        UnavailableError: There is none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        with suppress(OSError):
            asked.connect(("198.51.100.1", 9))  # nothing is sent; the kernel picks the source
        address: str = asked.getsockname()[0]
    if address.startswith(("127.", "0.", "169.254.")):
        raise UnavailableError(
            "this machine",
            "it has no address besides loopback, which EndpointSlices refuse",
            fix="give it one: ip address add 198.51.100.2/32 dev lo",
        )
    return address


@dataclass(slots=True, kw_only=True)
class Replica:
    """One replica and its process."""

    name: str
    host: str
    port: int
    health_port: int
    process: subprocess.Popen[bytes]
    is_terminating: bool = False
    is_retired: bool = False
    """Replaced: it ends, though nobody may have heard of it yet."""
    is_killed: bool = False
    """It was not given the time to end."""

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self.process.poll() is None

    def send(self, what: signal.Signals) -> None:
        """Send it a signal."""
        self.is_terminating |= what is signal.SIGTERM
        self.is_killed |= what is signal.SIGKILL
        with suppress(ProcessLookupError):
            self.process.send_signal(what)

    async def ended(self, timeout_s: float = END_S) -> int:
        """Its exit status, once it has ended.

        Raises:
            NeverHappenedError: It does not end.
        """

        async def look() -> bool:
            return not self.is_running

        await eventually(f"{self.name} ends", look, timeout_s=timeout_s)
        return int(self.process.returncode)
