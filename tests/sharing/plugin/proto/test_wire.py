"""The stubs speak the kubelet's protocol: numbers, types and paths, and no drift."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sharing.plugin.proto import deviceplugin_pb2, generate, podresources_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message

# (number, name, type) of each field: the device plugin API's own table.
DEVICE_PLUGIN: dict[str, list[tuple[int, str, str]]] = {
    "Empty": [],
    "DevicePluginOptions": [
        (1, "pre_start_required", "bool"),
        (2, "get_preferred_allocation_available", "bool"),
    ],
    "RegisterRequest": [
        (1, "version", "string"),
        (2, "endpoint", "string"),
        (3, "resource_name", "string"),
        (4, "options", "DevicePluginOptions"),
    ],
    "ListAndWatchResponse": [(1, "devices", "repeated Device")],
    "Device": [(1, "ID", "string"), (2, "health", "string"), (3, "topology", "TopologyInfo")],
    "TopologyInfo": [(1, "nodes", "repeated NUMANode")],
    "NUMANode": [(1, "ID", "int64")],
    "PreferredAllocationRequest": [
        (1, "container_requests", "repeated ContainerPreferredAllocationRequest")
    ],
    "ContainerPreferredAllocationRequest": [
        (1, "available_deviceIDs", "repeated string"),
        (2, "must_include_deviceIDs", "repeated string"),
        (3, "allocation_size", "int32"),
    ],
    "PreferredAllocationResponse": [
        (1, "container_responses", "repeated ContainerPreferredAllocationResponse")
    ],
    "ContainerPreferredAllocationResponse": [(1, "deviceIDs", "repeated string")],
    "AllocateRequest": [(1, "container_requests", "repeated ContainerAllocateRequest")],
    "ContainerAllocateRequest": [(1, "devices_ids", "repeated string")],
    "AllocateResponse": [(1, "container_responses", "repeated ContainerAllocateResponse")],
    "ContainerAllocateResponse": [
        (1, "envs", "map string string"),
        (2, "mounts", "repeated Mount"),
        (3, "devices", "repeated DeviceSpec"),
        (4, "annotations", "map string string"),
        (5, "cdi_devices", "repeated CDIDevice"),
    ],
    "Mount": [
        (1, "container_path", "string"),
        (2, "host_path", "string"),
        (3, "read_only", "bool"),
    ],
    "DeviceSpec": [
        (1, "container_path", "string"),
        (2, "host_path", "string"),
        (3, "permissions", "string"),
    ],
    "CDIDevice": [(1, "name", "string")],
    "PreStartContainerRequest": [(1, "devices_ids", "repeated string")],
    "PreStartContainerResponse": [],
}

POD_RESOURCES: dict[str, list[tuple[int, str, str]]] = {
    "ListPodResourcesResponse": [(1, "pod_resources", "repeated PodResources")],
    "PodResources": [
        (1, "name", "string"),
        (2, "namespace", "string"),
        (3, "containers", "repeated ContainerResources"),
        (4, "cpu_ids", "repeated int64"),
        (5, "memory", "repeated ContainerMemory"),
    ],
    "ContainerResources": [
        (1, "name", "string"),
        (2, "devices", "repeated ContainerDevices"),
        (3, "cpu_ids", "repeated int64"),
        (4, "memory", "repeated ContainerMemory"),
        (5, "dynamic_resources", "repeated DynamicResource"),
    ],
    "ContainerDevices": [
        (1, "resource_name", "string"),
        (2, "device_ids", "repeated string"),
        (3, "topology", "TopologyInfo"),
    ],
    "ClaimResource": [
        (1, "cdi_devices", "repeated CDIDevice"),
        (2, "driver_name", "string"),
        (3, "pool_name", "string"),
        (4, "device_name", "string"),
        (5, "share_id", "string"),
    ],
}

SCALARS = {3: "int64", 4: "uint64", 5: "int32", 8: "bool", 9: "string"}


def _type(field: Any) -> str:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return f"map {_type(entry.fields[0])} {_type(entry.fields[1])}"
    name = SCALARS[field.type] if entry is None else str(entry.name)
    return f"repeated {name}" if field.is_repeated else name


@pytest.mark.parametrize(
    ("module", "table"),
    [(deviceplugin_pb2, DEVICE_PLUGIN), (podresources_pb2, POD_RESOURCES)],
    ids=["deviceplugin", "podresources"],
)
def test_fields_have_the_numbers_and_types_of_the_contract(
    module: Any, table: dict[str, list[tuple[int, str, str]]]
) -> None:
    for name, expected in table.items():
        descriptor = module.DESCRIPTOR.message_types_by_name[name]
        found = sorted((f.number, f.name, _type(f)) for f in descriptor.fields)
        assert found == expected, name


def test_the_table_covers_every_device_plugin_message() -> None:
    assert set(deviceplugin_pb2.DESCRIPTOR.message_types_by_name) == set(DEVICE_PLUGIN)


def test_services_have_the_full_names_that_travel_on_the_wire() -> None:
    services = {
        f"/{service.full_name}/{method.name}": (
            method.input_type.name,
            method.output_type.name,
            method.server_streaming,
        )
        for module in (deviceplugin_pb2, podresources_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    v1beta1 = "/v1beta1.DevicePlugin"
    assert services == {
        "/v1beta1.Registration/Register": ("RegisterRequest", "Empty", False),
        f"{v1beta1}/GetDevicePluginOptions": ("Empty", "DevicePluginOptions", False),
        f"{v1beta1}/ListAndWatch": ("Empty", "ListAndWatchResponse", True),
        f"{v1beta1}/GetPreferredAllocation": (
            "PreferredAllocationRequest",
            "PreferredAllocationResponse",
            False,
        ),
        f"{v1beta1}/Allocate": ("AllocateRequest", "AllocateResponse", False),
        f"{v1beta1}/PreStartContainer": (
            "PreStartContainerRequest",
            "PreStartContainerResponse",
            False,
        ),
        "/v1.PodResourcesLister/List": (
            "ListPodResourcesRequest",
            "ListPodResourcesResponse",
            False,
        ),
        "/v1.PodResourcesLister/GetAllocatableResources": (
            "AllocatableResourcesRequest",
            "AllocatableResourcesResponse",
            False,
        ),
        "/v1.PodResourcesLister/Get": (
            "GetPodResourcesRequest",
            "GetPodResourcesResponse",
            False,
        ),
    }


@pytest.mark.parametrize(
    ("message", "octets"),
    [
        (deviceplugin_pb2.Device(ID="a", health="Healthy"), b"\x0a\x01a\x12\x07Healthy"),
        (
            deviceplugin_pb2.ContainerAllocateResponse(
                cdi_devices=[deviceplugin_pb2.CDIDevice(name="v/c=d")]
            ),
            b"\x2a\x07\x0a\x05v/c=d",
        ),
    ],
)
def test_a_message_has_the_octets_a_kubelet_reads(message: Message, octets: bytes) -> None:
    assert message.SerializeToString() == octets


def test_generated_stubs_equal_what_the_generator_writes(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "sharing.plugin.proto.generate", "--into", str(tmp_path)],
        check=True,
        timeout=60,
        cwd=generate.ROOT,
    )
    for protocol in generate.PROTOCOLS:
        for suffix in generate.SUFFIXES:
            relative = Path("sharing/plugin/proto") / f"{protocol}{suffix}"
            fresh = (tmp_path / relative).read_bytes()
            assert fresh == (generate.ROOT / relative).read_bytes(), relative
