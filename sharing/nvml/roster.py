"""All GPUs of a node, those that do not answer included.

A GPU that fell off the bus has no handle any more, so who it is must be remembered from before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from sharing.board import Architecture, Board
from sharing.nvml import reading
from sharing.nvml.binding import Binding
from sharing.nvml.codes import Code
from sharing.nvml.errors import DriverUnavailableError, InstanceNotFoundError, NvmlError
from sharing.nvml.observed import GpuFault, ObservedGpu, ObservedNode

_TRIES: Final = 3
"""An instance that another program destroys while we list makes the list worth repeating."""
_NOBODY: Final = Board(
    name="unknown",
    product_names=(),
    architecture=Architecture.UNKNOWN,
    compute_capability=(0, 0),
    memory_mib=0,
    sms=0,
)


class Roster:
    """The node's GPUs by what the driver says, and what it said last.

    Args:
        binding: The driver, initialised.
    """

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.memory = reading.Memory()
        self._last: dict[int, str] = {}

    def observe(self) -> ObservedNode:
        """All GPUs as they are now."""
        count = self.binding.call("DeviceGetCount")
        cuda = self.binding.attempt("SystemGetCudaDriverVersion_v2", default=0)
        return ObservedNode(
            driver_version=self.binding.text("SystemGetDriverVersion"),
            cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}",
            gpus=self._named([self._read(index) for index in range(count)]),
        )

    def count(self) -> int:
        """How many GPUs there are, those that do not answer included."""
        return int(self.binding.call("DeviceGetCount"))

    def answering(self) -> Iterator[tuple[str, Any]]:
        """UUID and handle of each GPU that answers."""
        for index in range(self.binding.call("DeviceGetCount")):
            subject = f"GPU {index}"
            try:
                handle = self.binding.call("DeviceGetHandleByIndex", index, subject=subject)
                yield self.binding.text("DeviceGetUUID", handle, subject=subject), handle
            except DriverUnavailableError:
                raise
            except NvmlError:
                continue  # observe says what is wrong with it

    def facts(self, uuid: str) -> reading.GpuFacts:
        """What never changes about a GPU.

        Raises:
            InstanceNotFoundError: There is no such GPU.
        """
        if uuid not in self.memory.facts:
            self.observe()
        found = self.memory.facts.get(uuid)
        if found is None:
            raise InstanceNotFoundError(
                f"GPU {uuid}",
                "is not on this node",
                fix="observe the node again",
                code=Code.NOT_FOUND,
            )
        return found

    def _read(self, index: int) -> ObservedGpu | tuple[int, GpuFault]:
        for attempt in range(1, _TRIES + 1):
            subject = f"GPU {index}"
            try:
                handle = self.binding.call("DeviceGetHandleByIndex", index, subject=subject)
                return reading.read_gpu(self.binding, handle, index, self.memory)
            except DriverUnavailableError:
                raise
            except NvmlError as error:
                if error.code is Code.NO_PERMISSION:
                    raise
                if error.code is not Code.NOT_FOUND or attempt == _TRIES:
                    return index, GpuFault(code=error.code, reason=str(error))
        raise AssertionError(index)

    def _named(self, found: list[ObservedGpu | tuple[int, GpuFault]]) -> tuple[ObservedGpu, ...]:
        """Say which GPUs did not answer, by their index in the last observation."""
        seen = {each.uuid for each in found if isinstance(each, ObservedGpu)}
        gpus = []
        for each in found:
            if isinstance(each, ObservedGpu):
                gpus.append(each)
                continue
            index, fault = each
            uuid = self._last.get(index, "")
            facts = None if uuid in seen else self.memory.facts.get(uuid)
            gpus.append(_faulty(facts, index, fault))
        self._last = {gpu.index: gpu.uuid for gpu in gpus if gpu.uuid}
        return tuple(gpus)


def _faulty(facts: reading.GpuFacts | None, index: int, fault: GpuFault) -> ObservedGpu:
    if facts is not None:
        return replace(reading.from_facts(facts, index), fault=fault)
    return ObservedGpu(
        uuid="",
        index=index,
        minor=index,
        product="unknown",
        board=_NOBODY,
        in_catalogue=False,
        pci_bus_id="",
        numa_node=None,
        fault=fault,
    )
