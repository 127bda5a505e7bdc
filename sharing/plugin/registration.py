"""Telling the kubelet that a class is served.

The kubelet calls back on the class's own socket before Register returns, so the call must never
keep the server from answering; here everything runs on one event loop and nothing blocks it.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Final

import grpc

from sharing.plugin.errors import PluginError
from sharing.plugin.offer import Offer
from sharing.plugin.proto import deviceplugin_pb2 as pb
from sharing.plugin.proto.deviceplugin_pb2_grpc import RegistrationStub
from sharing.plugin.server import dial
from sharing.plugin.servicer import options_of

API_VERSION: Final = "v1beta1"


async def register(kubelet: Path, offer: Offer, endpoint: str, *, timeout_s: float) -> None:
    """Announce a class that is served on a socket beside the kubelet's.

    Args:
        kubelet: The kubelet's socket.
        offer: The class.
        endpoint: Bare file name of our socket.
        timeout_s: For the whole call, the kubelet's own call back included.

    Raises:
        PluginError: The kubelet refused, or did not answer.
    """
    request = pb.RegisterRequest(
        version=API_VERSION,
        endpoint=endpoint,
        resource_name=offer.resource,
        options=options_of(offer.mode),
    )
    try:
        async with asyncio.timeout(timeout_s), dial(kubelet) as channel:
            await RegistrationStub(channel).Register(request, timeout=timeout_s)
    except grpc.RpcError as error:
        raise _refused(kubelet, offer, str(_details(error))) from error
    except TimeoutError as error:
        raise _refused(kubelet, offer, f"no answer within {timeout_s:g} s") from error


def _details(error: grpc.RpcError) -> object:
    details = getattr(error, "details", None)
    return details() if callable(details) else error


def _refused(kubelet: Path, offer: Offer, why: str) -> PluginError:
    return PluginError(
        f"resource {offer.resource}",
        f"the kubelet did not register it: {why}",
        expected=f"a kubelet that answers on {kubelet}",
        fix="nothing to do if the kubelet restarts, it is tried again; else look into its log",
    )


class RetryPause:
    """Pauses that double up to a longest one, with jitter so that classes do not march in step.

    Args:
        first_s: The shortest pause.
        longest_s: The longest pause.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def next_s(self) -> float:
        """The pause to make now."""
        pause, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        return pause * random.uniform(0.75, 1.25)

    def reset(self) -> None:
        """Begin again with the shortest pause."""
        self._next_s = self._first_s
