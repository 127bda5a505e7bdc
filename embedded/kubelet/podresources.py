"""PodResources v1: which container holds which device.

As the real one: one entry for each device; regular init containers and finished pods are
left out; an unknown pod is an error of status UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from embedded.kubelet.devices import DeviceTable
from embedded.kubelet.ledger import Ledger
from sharing.plugin.proto import podresources_pb2 as api
from sharing.plugin.proto.podresources_pb2_grpc import (
    PodResourcesListerServicer,
    add_PodResourcesListerServicer_to_server,
)

SOCKET: Final = "kubelet.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A pod that is admitted and not finished.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        uid: Its uid.
        containers: Names of its app containers and sidecars, in the pod's order.
    """

    namespace: str
    name: str
    uid: str
    containers: tuple[str, ...]


class PodResources(PodResourcesListerServicer):
    """The service, over the kubelet's own books.

    Args:
        folder: Where its socket lives.
        ledger: Who holds what.
        table: What there is.
        residents: The pods to tell about.
        tells_one: Whether one pod may be asked for, as from 1.34 on.
    """

    def __init__(
        self,
        folder: Path,
        ledger: Callable[[], Ledger],
        table: Callable[[], DeviceTable],
        residents: Callable[[], Iterable[Resident]],
        *,
        tells_one: bool = True,
    ) -> None:
        self._tells_one = tells_one
        self._folder = folder
        self._ledger = ledger
        self._table = table
        self._residents = residents
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Serve on a fresh socket."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / SOCKET
        path.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{path}")
        await self._server.start()

    async def stop(self) -> None:
        """Stop serving."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def List(  # noqa: N802 - the protocol's name
        self, request: api.ListPodResourcesRequest, context: Any
    ) -> api.ListPodResourcesResponse:
        """All pods of the node, in order of namespaces and names."""
        del request, context
        residents = sorted(self._residents(), key=lambda one: (one.namespace, one.name))
        return api.ListPodResourcesResponse(pod_resources=[self._pod(one) for one in residents])

    async def Get(  # noqa: N802 - the protocol's name
        self, request: api.GetPodResourcesRequest, context: Any
    ) -> api.GetPodResourcesResponse:
        """One pod."""
        if not self._tells_one:
            await context.abort(grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled")
        for one in self._residents():
            if (one.namespace, one.name) == (request.pod_namespace, request.pod_name):
                return api.GetPodResourcesResponse(pod_resources=self._pod(one))
        await context.abort(
            grpc.StatusCode.UNKNOWN,
            f"pod {request.pod_name} in namespace {request.pod_namespace} not found",
        )
        raise AssertionError  # abort always raises

    async def GetAllocatableResources(  # noqa: N802 - the protocol's name
        self, request: api.AllocatableResourcesRequest, context: Any
    ) -> api.AllocatableResourcesResponse:
        """All healthy devices, held or not."""
        del request, context
        table = self._table()
        return api.AllocatableResourcesResponse(
            devices=[
                _device(resource, id_, table.get(resource).numa.get(id_, ()))
                for resource in table.resources()
                for id_ in sorted(table.get(resource).healthy)
            ]
        )

    def _pod(self, resident: Resident) -> api.PodResources:
        ledger = self._ledger()
        return api.PodResources(
            name=resident.name,
            namespace=resident.namespace,
            containers=[
                api.ContainerResources(
                    name=container,
                    devices=[
                        _device(resource, id_, holding.numa.get(id_, ()))
                        for resource, holding in ledger.of(resident.uid, container).items()
                        for id_ in holding.devices
                    ],
                )
                for container in resident.containers
            ],
        )


def _device(resource: str, id_: str, numa: Iterable[int]) -> api.ContainerDevices:
    nodes = [api.NUMANode(ID=node) for node in numa]
    return api.ContainerDevices(
        resource_name=resource,
        device_ids=[id_],
        topology=api.TopologyInfo(nodes=nodes) if nodes else None,
    )
