"""A second node: a cable between the bridges of two boxes, and a route to each other's pods."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.cluster.box import control
from tests.cluster.box.machine import BRIDGE
from tests.cluster.box.spec import NodeSpec
from tests.cluster.waiting import until

_SET_UP_TIMEOUT_S: Final = 30.0
_COMMAND_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """One end of the cable."""

    spec: NodeSpec
    pid: int

    def ip(self, *arguments: str) -> None:
        """Run ``ip`` in the box's network, but with our process numbers."""
        command = ["nsenter", "--target", str(self.pid), "--net", "ip", *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=_COMMAND_TIMEOUT_S)

    def has_bridge(self) -> bool:
        """Whether the box has set its network up."""
        try:
            self.ip("link", "show", BRIDGE, "up")
        except subprocess.CalledProcessError:
            return False
        return True


def join(first: NodeSpec, second: NodeSpec, still: Callable[[], None]) -> None:
    """Join a box that is being started to one that runs.

    Args:
        first: It has the control plane.
        second: It waits for the API server.
        still: Raises when the second box has ended.
    """
    one = _End(spec=first, pid=control.server_pid(first.control_socket))
    until(
        "the second box takes orders",
        second.control_socket.exists,
        timeout_s=_SET_UP_TIMEOUT_S,
        still=still,
    )
    two = _End(spec=second, pid=control.server_pid(second.control_socket))
    until("its network is set up", two.has_bridge, timeout_s=_SET_UP_TIMEOUT_S, still=still)
    plug = f"to-{second.node}"
    one.ip("link", "add", plug, "type", "veth", "peer", "name", "uplink", "netns", str(two.pid))
    one.ip("link", "set", plug, "master", BRIDGE, "up")
    two.ip("link", "set", "uplink", "master", BRIDGE, "up")
    one.ip("route", "add", second.pods, "via", second.address)
    two.ip("route", "add", first.pods, "via", first.address)
