"""Our own port, tried as an API server tries it: the last word on whether we are ready.

That a good certificate was loaded and is trusted says nothing of what a caller meets. So the
port is tried: at the start, whenever the served certificate or the bundles change, and now and
then. A certificate that does not verify makes us unready at once; a handshake that merely does
not come about has to fail several times, since a crowd must not take us out of service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from certs.bundle import Bundle
from certs.context import HotContext
from certs.errors import CertificateError
from certs.probe import probe
from sharing.errors import UnavailableError

PERIOD_S: Final = 10.0
"""How often a port is tried that was well."""
_AGAIN_S: Final = 1.0
"""The same for one that was not."""
_LOOK_S: Final = 0.2
"""How often it is looked whether something has changed."""
_FAILURES: Final = 3
"""So many handshakes in a row have to come to nothing before it counts."""
_TIMEOUT_S: Final = 5.0
_LOOPBACK: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}

_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Callers:
    """Those who call.

    Attributes:
        name: The name that they ask for.
        bundles: Whom each of them trusts.
    """

    name: str
    bundles: tuple[Bundle, ...]


class SelfProbe:
    """Tries our own port.

    Args:
        callers: Who calls, as far as is known; None where it is not.
        context: What is served with.
    """

    def __init__(self, callers: Callable[[], Callers | None], context: HotContext) -> None:
        self._callers = callers
        self._context = context
        self._tried: object = None
        self._next_s = 0.0
        self._failures = 0
        self._reason = "its own port was not tried yet"

    def unready_reason(self) -> str:
        """Why callers' handshakes fail; empty where they do not."""
        return self._reason

    async def run(self, host: str, port: int) -> None:
        """Try the port until cancelled."""
        while True:
            if self._is_due():
                await self.look(host, port)
            await asyncio.sleep(_LOOK_S)

    async def look(self, host: str, port: int) -> None:
        """Try the port once, if there is anything to serve."""
        if self._context.leaf is None:
            return
        self._tried, callers = self._state(), self._callers()
        bundles = (None,) if callers is None else dict.fromkeys(callers.bundles)
        name = "localhost" if callers is None else callers.name
        try:
            for bundle in bundles:
                await probe(
                    _LOOPBACK.get(host, host), port, name=name, authorities=bundle,
                    now=self._context.now, timeout_s=_TIMEOUT_S,
                )  # fmt: skip
        except CertificateError as error:
            self._fail(str(error))
        except UnavailableError as error:
            self._failures += 1
            if self._failures >= _FAILURES:
                self._fail(str(error))
        else:
            self._failures, self._reason = 0, ""
        is_well = not self._reason and not self._failures
        self._next_s = asyncio.get_running_loop().time() + (PERIOD_S if is_well else _AGAIN_S)

    def _fail(self, reason: str) -> None:
        if reason != self._reason:
            _log.warning("own port would refuse callers", error=reason)
        self._reason = reason

    def _is_due(self) -> bool:
        return self._state() != self._tried or asyncio.get_running_loop().time() >= self._next_s

    def _state(self) -> object:
        return self._context.leaf, self._callers()
