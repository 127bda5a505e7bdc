"""One gRPC server on one fresh socket: made for a registration, thrown away with it.

A socket is never used twice. Kubelets before 1.36 keep plugins by resource name, and a late
disconnect of an old connection would remove the new one (kubernetes#121994); a fresh file, and
the old stream's end before the new registration, leave nothing to mix up.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import stat
from pathlib import Path
from typing import Final

import grpc
import structlog
from grpc import aio

from sharing.plugin.errors import PluginError
from sharing.plugin.offer import Offer
from sharing.plugin.proto import deviceplugin_pb2 as pb
from sharing.plugin.proto.deviceplugin_pb2_grpc import (
    DevicePluginStub,
    add_DevicePluginServicer_to_server,
)
from sharing.plugin.servicer import Answers, ClassServicer

SOCKET_PREFIX: Final = "gpu-sharing-"
_GRACE_S: Final = 1.0
_TOKEN_CHARACTERS: Final = 24
_DIAL: Final = (
    # Each dial on its own: a shared subchannel would carry the back-off of an earlier failure.
    ("grpc.use_local_subchannel_pool", 1),
)

_log = structlog.get_logger()


def dial(path: Path) -> aio.Channel:
    """A channel to a unix socket that shares nothing with earlier ones."""
    return aio.insecure_channel(f"unix:{path}", options=_DIAL)


class PluginServer:
    """One class on one socket.

    Args:
        socket_dir: Where the kubelet looks for sockets.
        offer: What is served.
        answers: How to answer.
    """

    def __init__(self, socket_dir: Path, offer: Offer, answers: Answers) -> None:
        token = re.sub(r"[^a-z0-9.]+", "-", offer.resource.partition("/")[2])[:_TOKEN_CHARACTERS]
        name = f"{SOCKET_PREFIX}{token}-{secrets.token_hex(4)}.sock"
        self.path = socket_dir / name
        self.servicer = ClassServicer(offer, answers)
        self._server = aio.server(options=(("grpc.so_reuseport", 0),))
        add_DevicePluginServicer_to_server(self.servicer, self._server)

    async def start(self, *, check_s: float) -> None:
        """Serve, and prove it by a call of our own before the kubelet hears of the socket.

        Raises:
            PluginError: The socket cannot be made, or nobody answers on it.
        """
        try:
            self._server.add_insecure_port(f"unix:{self.path}")
            await self._server.start()
            async with asyncio.timeout(check_s), dial(self.path) as channel:
                await DevicePluginStub(channel).GetDevicePluginOptions(pb.Empty(), timeout=check_s)
        except (OSError, RuntimeError, TimeoutError, grpc.RpcError) as error:
            raise PluginError(
                f"socket {self.path}",
                f"does not serve: {_words(error)}",
                expected="a folder that can be written and a path below 108 bytes",
                fix="mount the kubelet's device-plugins folder into the agent's container",
            ) from error

    async def stop(self) -> None:
        """End the streams after what they owe, then everything; the socket file goes too."""
        self.servicer.close()
        await self._server.stop(_GRACE_S)
        self.path.unlink(missing_ok=True)


def _words(error: BaseException) -> str:
    if isinstance(error, grpc.RpcError):
        details = getattr(error, "details", None)
        return str(details() if callable(details) else error)
    return str(error) or "no answer in time"


def remove_leftovers(socket_dir: Path) -> None:
    """Remove sockets of an agent that died; one that still serves is left alone."""
    for path in sorted(socket_dir.glob(f"{SOCKET_PREFIX}*.sock")):
        if _is_dead(path):
            path.unlink(missing_ok=True)
            _log.info("a dead socket was removed", socket=str(path))


def _is_dead(path: Path) -> bool:
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(str(path))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
