"""From our values to the kubelet's messages; nothing is decided here."""

from __future__ import annotations

from sharing.plugin.allocation import ContainerAnswer
from sharing.plugin.binding import ShareBinding
from sharing.plugin.offer import Offer
from sharing.plugin.proto import deviceplugin_pb2 as pb

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"


def device_list(offer: Offer) -> pb.ListAndWatchResponse:
    """A complete list, in order of ids."""
    return pb.ListAndWatchResponse(devices=[_device(binding) for binding in offer.listed])


def _device(binding: ShareBinding) -> pb.Device:
    health = HEALTHY if binding.healthy else UNHEALTHY
    if binding.numa_node is None:
        return pb.Device(ID=binding.device_id, health=health)
    topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=binding.numa_node)])
    return pb.Device(ID=binding.device_id, health=health, topology=topology)


def container_answer(answer: ContainerAnswer) -> pb.ContainerAllocateResponse:
    """One container's part of an Allocate answer."""
    return pb.ContainerAllocateResponse(
        envs=dict(answer.envs),
        mounts=[
            pb.Mount(
                host_path=mount.host_path,
                container_path=mount.container_path,
                read_only=mount.read_only,
            )
            for mount in answer.mounts
        ],
        devices=[
            pb.DeviceSpec(
                host_path=file.host_path, container_path=file.container_path, permissions="rw"
            )
            for file in answer.device_files
        ],
        annotations=dict(answer.annotations),
        cdi_devices=[pb.CDIDevice(name=name) for name in answer.cdi_names],
    )
