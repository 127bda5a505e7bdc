"""The kubelet's side of the device plugin protocol: registrations and device streams.

Two generations are replayed. Kubelets of today key a plugin's connection by resource and
socket, so that the end of an old connection says nothing about a new one. Kubelets before
kubernetes PR #135437 key it by resource alone: when an old connection ends late, they cut
whatever serves the resource now (kubernetes#121994, #127803).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Final

import grpc
import structlog

from embedded.kubelet.clock import Clock
from embedded.kubelet.devices import DeviceSet, DeviceTable
from embedded.kubelet.endpoint import DIAL_TIMEOUT_S, Endpoint, PluginError
from embedded.kubelet.naming import is_extended_resource
from sharing.plugin.proto import deviceplugin_pb2 as api
from sharing.plugin.proto.deviceplugin_pb2_grpc import (
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)

KUBELET_SOCKET: Final = "kubelet.sock"
VERSION: Final = "v1beta1"
GRACE_S: Final = 300.0
"""How long a lost plugin's devices stay in capacity, unhealthy."""
_log: Final = structlog.get_logger()


class Plugins(RegistrationServicer):
    """All plugins of one node.

    Args:
        folder: The socket folder.
        table: Takes the devices.
        clock: Time.
        on_change: Called after each change of the table.
        grace_s: How long a lost plugin's devices stay in capacity.
        dial_timeout_s: How long Register waits for the plugin's socket.
        keyed_by_resource: Behave as kubelets before PR #135437 did.
    """

    def __init__(
        self,
        folder: Path,
        table: DeviceTable,
        clock: Clock,
        on_change: Callable[[str], None],
        *,
        grace_s: float = GRACE_S,
        dial_timeout_s: float = DIAL_TIMEOUT_S,
        keyed_by_resource: bool = False,
    ) -> None:
        self._folder = folder
        self._table = table
        self._clock = clock
        self._on_change = on_change
        self._grace_s = grace_s
        self._dial_timeout_s = dial_timeout_s
        self._keyed_by_resource = keyed_by_resource
        self._endpoints: dict[str, Endpoint] = {}
        self._streams: dict[Endpoint, asyncio.Task[None]] = {}
        self._graces: dict[str, asyncio.Task[None]] = {}
        self._expected: set[str] = set()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Clear the folder of sockets, then serve registrations in it.

        Everything else in the folder stays, the checkpoint above all.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._folder.iterdir()):
            if path.is_socket():
                path.unlink(missing_ok=True)
        (self._folder / "DEPRECATION").touch()
        self._server = grpc.aio.server()
        add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self._folder / KUBELET_SOCKET}")
        await self._server.start()

    async def stop(self) -> None:
        """Cut all connections, as the end of the process does; sockets stay behind."""
        tasks = [*self._streams.values(), *self._graces.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for endpoint in [*self._streams, *self._endpoints.values()]:
            await endpoint.close()
        self._streams, self._graces, self._endpoints = {}, {}, {}
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def endpoint(self, resource: str) -> Endpoint | None:
        """The plugin that serves a resource now or did last; None if none registered."""
        return self._endpoints.get(resource)

    def expect(self, resources: Iterable[str]) -> None:
        """Know resources from a checkpoint: capacity 0 until their plugins come back."""
        for resource in resources:
            self._expected.add(resource)
            self._table.put(resource, DeviceSet())

    async def pre_start(self, resource: str, devices: Collection[str]) -> None:
        """Call PreStartContainer where the plugin's options ask for it.

        A plugin known from the checkpoint alone has no options yet.

        Raises:
            PluginError: If the plugin objects, or is gone for longer than the grace.
        """
        endpoint = self._endpoints.get(resource)
        if endpoint is None and resource not in self._expected:
            raise PluginError(
                "", f"endpoint not found in cache for a registered resource: {resource}"
            )
        if endpoint is not None and endpoint.options.pre_start_required:
            await endpoint.pre_start(devices)

    # -- registration

    async def Register(  # noqa: N802 - the protocol's name
        self, request: api.RegisterRequest, context: Any
    ) -> api.Empty:
        """Take a plugin in; it is dialled back before this returns."""
        refusal = _refusal(request)
        if refusal:
            _log.warning("plugin was refused", resource=request.resource_name, reason=refusal)
            await context.abort(grpc.StatusCode.UNKNOWN, refusal)
        try:
            await self._connect(request.resource_name, self._folder / request.endpoint)
        except PluginError as error:
            _log.warning("plugin was refused", resource=request.resource_name, reason=str(error))
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return api.Empty()

    async def _connect(self, resource: str, path: Path) -> None:
        if not self._keyed_by_resource and any(
            known.resource == resource and known.path == path for known in self._streams
        ):
            raise PluginError("", f"device plugin already connected: {path}")
        endpoint = Endpoint(resource, path)
        try:
            await endpoint.dial(self._dial_timeout_s)
        except BaseException:
            await endpoint.close()
            raise
        self._endpoints[resource] = endpoint
        grace = self._graces.pop(resource, None)
        if grace is not None:
            grace.cancel()
        self._streams[endpoint] = asyncio.create_task(
            self._follow(endpoint), name=f"devices of {resource}"
        )
        _log.info("plugin was registered", resource=resource, socket=path.name)

    # -- device lists

    async def _follow(self, endpoint: Endpoint) -> None:
        try:
            async for devices in endpoint.lists():
                # A kubelet that knows connections by resource takes any list for it.
                if self._keyed_by_resource or self._endpoints.get(endpoint.resource) is endpoint:
                    self._table.put(endpoint.resource, DeviceSet.of(devices))
                    self._on_change(endpoint.resource)
        except PluginError as error:
            _log.warning("device list ended", resource=endpoint.resource, reason=str(error))
        finally:
            self._streams.pop(endpoint, None)
        await self._ended(endpoint)

    async def _ended(self, endpoint: Endpoint) -> None:
        await endpoint.close()
        resource = endpoint.resource
        current = self._endpoints.get(resource)
        if current is None or current.stopped_at is not None:
            return
        if current is not endpoint:
            if not self._keyed_by_resource:
                return
            # The old kubelet looks the connection up by resource and finds the new one.
            await current.close()
        current.stopped_at = self._clock.now()
        self._table.fail(resource)
        self._graces[resource] = asyncio.create_task(
            self._expire(current), name=f"grace of {resource}"
        )
        self._on_change(resource)

    async def _expire(self, endpoint: Endpoint) -> None:
        await self._clock.sleep(self._grace_s)
        self._graces.pop(endpoint.resource, None)
        if self._endpoints.get(endpoint.resource) is endpoint:
            del self._endpoints[endpoint.resource]
            self._table.drop(endpoint.resource)
            _log.warning("plugin stayed away", resource=endpoint.resource, grace_s=self._grace_s)
            self._on_change(endpoint.resource)


def _refusal(request: api.RegisterRequest) -> str:
    """Why a registration cannot be accepted, in the kubelet's words; empty if it can."""
    if request.version != VERSION:
        return (
            f'requested API version "{request.version}" is not supported by kubelet. '
            f'Supported version is "{VERSION}"'
        )
    if not is_extended_resource(request.resource_name):
        return f'the ResourceName "{request.resource_name}" is invalid'
    return ""
