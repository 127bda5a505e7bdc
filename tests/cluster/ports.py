"""Ports for programs that cannot be handed a listener."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from typing import Final

_BELOW_EPHEMERAL: Final = range(20_000, 32_768)
"""Whoever asks the kernel for any port gets one above (ip(7), ip_local_port_range), so that a port
which is free now is not given away before its program listens."""


def free_ports(count: int) -> list[int]:
    """Different ports on loopback that nothing listens on right now."""
    ports: list[int] = []
    with ExitStack() as held:
        for port in random.sample(_BELOW_EPHEMERAL, len(_BELOW_EPHEMERAL)):
            if len(ports) == count:
                break
            try:
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue  # somebody's
            ports.append(port)
    return ports
