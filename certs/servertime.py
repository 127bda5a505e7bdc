"""The time as API servers have it.

Whether a certificate is valid is decided by the clock of whoever verifies it, and that is an
API server. So its time is the one that counts, not that of the node on which a replica happens
to run: a node whose clock is a day ahead would make a leaf that callers refuse for a day.

Every answer of an API server carries its time (RFC 9110, 6.6.1). Between two answers the time
goes on by a clock that nobody sets and that counts while a machine sleeps.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from certs.cluster import utc_now
from sharing.cluster.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

    import aiohttp

_ANEW_TIMEOUT_S: Final = 10.0
_EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)


def since_boot_s() -> float:
    """Seconds since the machine started, those included in which it slept (clock_gettime(2))."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ServerTime:
    """What an API server's clock says now; this machine's, until an API server has answered.

    Args:
        wall: This machine's clock.
        steady_s: Seconds that nobody sets.
    """

    def __init__(
        self,
        wall: Callable[[], datetime] = utc_now,
        steady_s: Callable[[], float] = since_boot_s,
    ) -> None:
        self._wall = wall
        self._steady_s = steady_s
        self._noted: tuple[datetime, float] | None = None

    def __call__(self) -> datetime:
        """The time, a second exact."""
        if self._noted is None:
            return self._wall()
        date, at_s = self._noted
        return date + timedelta(seconds=self._steady_s() - at_s)

    def note(self, date: str) -> None:
        """Take the time from a ``Date`` header; what is no date is passed over."""
        try:
            found = parsedate_to_datetime(date)
        except ValueError:
            return
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        # A server behind a proxy that knows no time would stop every rotation.
        if found > _EARLIEST:
            self._noted = found, self._steady_s()


class TimedClient(Client):
    """A client that notes the time with every answer, in ``time``.

    Where several API servers share an address, whose time that is may change with each answer; they
    all verify what is served here.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.time = ServerTime()

    def anew(self) -> Client:
        """A client of its own connection, which may lead to another one of several API servers."""
        return Client(self._source, user_agent=self._user_agent, timeout_s=_ANEW_TIMEOUT_S)

    async def _send(self, *args: Any, **options: Any) -> aiohttp.ClientResponse:
        response = await super()._send(*args, **options)
        self.time.note(response.headers.get("Date", ""))
        return response
