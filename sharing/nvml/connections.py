"""How the GPUs of a node are connected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final

from sharing.nvml.binding import Binding
from sharing.nvml.codes import FIELD_NVLINK_COUNT, Code, TopologyLevel
from sharing.nvml.observed import Link

_SWITCH: Final = 2
_THROUGH_SWITCHES: Final = "switches"


def read_links(binding: Binding, handles: Mapping[str, Any]) -> tuple[Link, ...]:
    """Each pair of GPUs once, by UUID.

    Links into NVSwitches reach every GPU that has such links, with the fewer of both.

    Raises:
        NvmlError: A GPU does not answer.
    """
    far_ends = {uuid: _far_ends(binding, uuid, handle) for uuid, handle in handles.items()}
    addresses = {uuid: _bus_id(binding, uuid, handle) for uuid, handle in handles.items()}
    return tuple(
        Link(
            one=one,
            other=other,
            level=_level(binding, handles[one], handles[other], one),
            nvlinks=_between(far_ends[one], far_ends[other], addresses[other]),
        )
        for one, other in combinations(sorted(handles), 2)
    )


def _between(one: Counter[str], other: Counter[str], address: str) -> int:
    switched = min(one[_THROUGH_SWITCHES], other[_THROUGH_SWITCHES])
    return max(switched, one[address])


def _level(binding: Binding, one: Any, other: Any, uuid: str) -> TopologyLevel:
    number = binding.attempt(
        "DeviceGetTopologyCommonAncestor",
        one,
        other,
        default=int(TopologyLevel.SYSTEM),
        subject=f"GPU {uuid}",
    )
    return TopologyLevel(number) if number in set(TopologyLevel) else TopologyLevel.SYSTEM


def _far_ends(binding: Binding, uuid: str, handle: Any) -> Counter[str]:
    """Active links by what is at their other end."""
    subject = f"GPU {uuid}"
    values = binding.attempt(
        "DeviceGetFieldValues", handle, [FIELD_NVLINK_COUNT], default=None, subject=subject
    )
    known = values is not None and values[0].nvmlReturn == Code.SUCCESS
    ends: Counter[str] = Counter()
    for link in range(values[0].value.uiVal if known else 0):
        if not binding.attempt("DeviceGetNvLinkState", handle, link, default=0, subject=subject):
            continue
        kind = binding.attempt(
            "DeviceGetNvLinkRemoteDeviceType", handle, link, default=_SWITCH, subject=subject
        )
        if kind == _SWITCH:
            ends[_THROUGH_SWITCHES] += 1
            continue
        pci = binding.attempt(
            "DeviceGetNvLinkRemotePciInfo", handle, link, default=None, subject=subject
        )
        if pci is not None:
            ends[_text(pci.busId)] += 1
    return ends


def _bus_id(binding: Binding, uuid: str, handle: Any) -> str:
    return _text(binding.call("DeviceGetPciInfo", handle, subject=f"GPU {uuid}").busId)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
