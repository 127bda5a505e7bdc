"""The kubelet's checkpoint: the ledger and the registered devices, on disk.

The file has the name, the place and the keys of the real one, so that tools and people
find what they know. The checksum is ours (CRC-32 over the data): the real one is a hash
over a dump of Go values. Devices are filed by NUMA node as there; -1 means unknown.
"""

from __future__ import annotations

import os
import zlib
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any, Final

import orjson
from google.protobuf.message import DecodeError

from embedded.errors import EmbeddedError
from embedded.kubelet.devices import DeviceTable
from embedded.kubelet.ledger import Holding, Ledger
from sharing.plugin.proto import deviceplugin_pb2 as api

FILE_NAME: Final = "kubelet_internal_checkpoint"
_UNKNOWN_NODE: Final = "-1"


def write(folder: Path, ledger: Ledger, table: DeviceTable) -> None:
    """Write the checkpoint so that a reader finds the old one or the new one, whole.

    Raises:
        OSError: If the folder is gone or full.
    """
    data = {
        "PodDeviceEntries": [
            {
                "PodUID": uid,
                "ContainerName": container,
                "ResourceName": resource,
                "DeviceIDs": _by_node(holding),
                "AllocResp": b64encode(holding.answer.SerializeToString()).decode(),
            }
            for uid, container, resource, holding in ledger.entries()
        ],
        "RegisteredDevices": {
            resource: sorted(table.get(resource).healthy) for resource in table.resources()
        },
    }
    content = orjson.dumps({"Data": data, "Checksum": _checksum(data)})
    fresh = folder / f".{FILE_NAME}.new"
    fresh.write_bytes(content)
    os.replace(fresh, folder / FILE_NAME)  # noqa: PTH105 - the one that is documented as atomic


def read(folder: Path) -> tuple[Ledger, tuple[str, ...]]:
    """The ledger and the names of the resources that were registered.

    Returns:
        Both empty if there is no checkpoint.

    Raises:
        EmbeddedError: If the file is damaged.
    """
    ledger = Ledger()
    path = folder / FILE_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ledger, ()
    try:
        document = orjson.loads(content)
        data = document["Data"]
        if document["Checksum"] != _checksum(data):
            raise ValueError("the checksum does not match")
        for entry in data["PodDeviceEntries"]:
            _enter(ledger, entry)
        return ledger, tuple(sorted(data["RegisteredDevices"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DecodeError) as error:
        raise EmbeddedError(
            f"kubelet checkpoint {path}", f"is damaged: {error}", fix="remove it"
        ) from error


def _enter(ledger: Ledger, entry: dict[str, Any]) -> None:
    numa: dict[str, tuple[int, ...]] = {}
    ids: set[str] = set()
    for node, devices in entry["DeviceIDs"].items():
        ids.update(devices)
        if node != _UNKNOWN_NODE:
            for device in devices:
                numa[device] = (*numa.get(device, ()), int(node))
    answer = api.ContainerAllocateResponse.FromString(b64decode(entry["AllocResp"]))
    holding = Holding(devices=tuple(sorted(ids)), answer=answer, numa=numa)
    ledger.put(entry["PodUID"], entry["ContainerName"], entry["ResourceName"], holding)


def _by_node(holding: Holding) -> dict[str, list[str]]:
    nodes: dict[str, list[str]] = {}
    for device in holding.devices:
        for node in holding.numa.get(device, ()) or (_UNKNOWN_NODE,):
            nodes.setdefault(str(node), []).append(device)
    return dict(sorted(nodes.items()))


def _checksum(data: object) -> int:
    return zlib.crc32(orjson.dumps(data, option=orjson.OPT_SORT_KEYS))
