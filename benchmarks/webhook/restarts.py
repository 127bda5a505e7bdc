"""Two replicas under load while both are replaced and the certificate changes, again and again.

What a Service does is done here: a replica that is ready becomes an endpoint, one that is ending
stays an endpoint for a while longer, as endpoints propagate late, and open connections stay where
they are. Times are those of a cluster divided by ten where a cluster's are long: an idle
connection lives 9 s in place of the API server's 90 s, a replica drains for 10 s, not 100 s.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.webhook.credentials import SERVER_NAME, Credentials
from benchmarks.webhook.loads import call_options
from benchmarks.webhook.processes import Load, Webhook, our_command
from benchmarks.webhook.reviews import ReviewInput
from sharing.errors import UnavailableError
from webhook.settings import ServerSettings

RATE: Final = 200.0
_REPLICAS: Final = 2
_PROPAGATION_S: Final = 1.0
_DRAIN_DELAY_S: Final = ServerSettings().drain_delay_s
"""What is installed. Less is less than a busy machine may stall for between choosing an endpoint
and reaching it."""
_DRAIN_TIMEOUT_S: Final = 10.0
_IDLE_S: Final = 9.0
_CHANGE_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Survived:
    """What the load saw."""

    restarts: int
    changes: int
    sent: int
    failed: int
    first_error: str
    certificates: int
    """Different ones that handshakes showed."""
    unclean: int
    """Replicas that did not end by themselves with exit status 0."""
    worst_ms: float


@dataclass(slots=True, kw_only=True)
class Restarts:
    """The run; ``survive`` does it."""

    load: Load
    credentials: Credentials
    world: Path
    core: int
    folder: Path
    say: Callable[[str], None]
    _replicas: list[Webhook] = field(default_factory=list)
    _ending: list[Webhook] = field(default_factory=list)

    def survive(self, asked: ReviewInput, *, times: int) -> Survived:
        """Replace both replicas and change the certificate so many times.

        Raises:
            UnavailableError: A replica does not start, or does not take a certificate.
        """
        body = self.folder / f"{asked.name}.restarts.json"
        body.write_bytes(asked.body)
        with ExitStack() as stack:
            self._replicas = [self._start(stack) for _ in range(_REPLICAS)]
            self.load.do(
                "steady",
                **call_options(self.credentials, body, asked),
                url=f"https://{SERVER_NAME}/mutate",
                status=200,
                rate=RATE,
                idle_s=_IDLE_S,
                endpoints=self._endpoints(),
            )
            for time_ in range(times):
                self.say(f"restart and certificate change {time_ + 1} of {times}")
                for place in range(_REPLICAS):
                    self._replace(place, stack)
                self._change_certificate()
            unclean = sum(self._end_status(replica) != 0 for replica in self._ending)
            seen = self.load.do("stop")
        return _survived(seen, times=times, unclean=unclean)

    def _start(self, stack: ExitStack) -> Webhook:
        options = (f"--drain-delay={_DRAIN_DELAY_S}", f"--drain-timeout={_DRAIN_TIMEOUT_S}")
        command = our_command("replica", self.world, *options)
        replica = Webhook(command, self.credentials, core=self.core, folder=self.folder)
        stack.callback(replica.close)
        return replica.wait_ready()

    def _replace(self, place: int, stack: ExitStack) -> None:
        fresh, old = self._start(stack), self._replicas[place]
        self.load.do("endpoints", endpoints=[*self._endpoints(), fresh.address])
        old.terminate()
        time.sleep(_PROPAGATION_S)
        self._replicas[place] = fresh
        self._ending.append(old)
        self.load.do("endpoints", endpoints=self._endpoints())

    def _change_certificate(self) -> None:
        wanted = self.credentials.change()
        for replica in self._replicas:
            self._wait_served(replica, wanted)
        self.load.do("renew")

    def _wait_served(self, replica: Webhook, wanted: bytes) -> None:
        deadline = time.monotonic() + _CHANGE_TIMEOUT_S
        while served_certificate(replica.address, self.credentials.trusting()) != wanted:
            if time.monotonic() > deadline:
                raise UnavailableError(
                    "replica", f"it does not serve the new certificate after {_CHANGE_TIMEOUT_S} s"
                )
            time.sleep(_POLL_S)

    def _endpoints(self) -> list[str]:
        return [replica.address for replica in self._replicas]

    def _end_status(self, replica: Webhook) -> int | None:
        return replica.wait_ended(_DRAIN_DELAY_S + _DRAIN_TIMEOUT_S + 5.0)


def served_certificate(address: str, context: ssl.SSLContext) -> bytes | None:
    """The certificate that a server shows, in DER."""
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=_CHANGE_TIMEOUT_S) as raw,
        context.wrap_socket(raw, server_hostname=SERVER_NAME) as connection,
    ):
        return connection.getpeercert(binary_form=True)


def _survived(seen: dict[str, Any], *, times: int, unclean: int) -> Survived:
    return Survived(
        restarts=times,
        changes=times,
        sent=seen["sent"],
        failed=seen["failed"] + seen["unsent"],
        first_error=seen["first_error"],
        certificates=seen["certificates"],
        unclean=unclean,
        worst_ms=seen["worst_ms"],
    )
