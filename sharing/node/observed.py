"""What a plan needs to know about a GPU: values made from the driver's answers.

Everything is keyed by the GPU's UUID; indices shuffle when a GPU is lost or swapped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from sharing.board import Board, Placement
from sharing.layout import GpuIdentity, GpuLayout
from sharing.miglayout import Placed
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.nvml import observed as nvml
from sharing.share import PlacedInstance, mig_device_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A GPU instance as the driver lists it."""

    profile: MigProfile
    placement: Placement
    gi_id: int
    """The driver's number for it; reused after destruction, so never identity."""
    mig_uuid: str | None
    """None while no compute instance fills it: half made, and of no use to anybody."""
    memory_mib: int
    mps: GpuLayout | None = None
    """What the MPS daemon of its MIG device serves; None where none runs."""

    @property
    def placed(self) -> Placed | None:
        """Its profile and place, if it is whole."""
        if self.mig_uuid is None:
            return None
        return Placed(self.profile, self.placement)

    def device_id(self, gpu_uuid: str) -> str | None:
        """The device id of the share that it is, if it is whole."""
        if self.mig_uuid is None:
            return None
        return mig_device_id(gpu_uuid, self.profile, self.placement.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuttable:
    """What shares are cut from: a GPU, or a MIG instance."""

    uuid: str
    """Of the GPU or the MIG device, as programs are told which one to use."""
    gpu_uuid: str
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that uses a GPU, as the driver lists it."""

    pid: int
    gi_id: int | None = None
    """The GPU instance that it runs in; None for one that uses the whole GPU."""
    mps_server: bool = False
    """Whether it serves the clients of an MPS daemon of the GPU's own: no work of anybody's,
    although it stays on the GPU when the last client is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """One GPU: what the driver says, and what the node did with it."""

    index: int
    uuid: str
    board: Board
    product: str
    memory_mib: int
    pci_bus_id: str = ""
    numa_node: int | None = None
    mig_enabled: bool = False
    mig_pending: bool = False
    """The MIG mode that a reset would bring; differs from ``mig_enabled`` while one is due."""
    instances: tuple[Instance, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    processes_listed: bool = True
    """Whether the driver said who runs on it; if not, nothing there may be taken for idle."""
    lost: bool = False
    """It fell off the bus or cannot be read in full; all else is from before."""
    minor: int = 0
    """Number in ``/dev/nvidia<minor>`` and in the driver's capability files."""
    mps: GpuLayout | None = None
    """The layout that its MPS daemon serves; None where none runs."""

    @property
    def identity(self) -> GpuIdentity:
        """What selectors look at."""
        return GpuIdentity(index=self.index, uuid=self.uuid, board=self.board.name)

    @property
    def placed(self) -> tuple[Placed, ...]:
        """Its whole instances by place."""
        whole = [one.placed for one in self.instances if one.placed is not None]
        return tuple(sorted(whole, key=lambda placed: placed.placement))

    @property
    def work(self) -> tuple[GpuProcess, ...]:
        """Its processes less the servers of its own MPS daemons."""
        return tuple(one for one in self.processes if not one.mps_server)

    def share_instances(self, places: frozenset[Placed]) -> tuple[PlacedInstance, ...]:
        """Those of its whole instances that lie at given places, by start."""
        return tuple(
            PlacedInstance(
                profile=placed.profile, start=placed.placement.start, memory_mib=one.memory_mib
            )
            for one in sorted(self.instances, key=lambda one: one.placement)
            if (placed := one.placed) is not None and placed in places
        )

    @property
    def cuttables(self) -> dict[str, Cuttable]:
        """What its shares can be cut from, by device id of the instance or the GPU's UUID."""
        whole = Cuttable(uuid=self.uuid, gpu_uuid=self.uuid, memory_mib=self.memory_mib)
        found = {self.uuid: whole}
        for one in self.instances:
            device_id = one.device_id(self.uuid)
            if device_id is not None and one.mig_uuid is not None:
                found[device_id] = Cuttable(
                    uuid=one.mig_uuid, gpu_uuid=self.uuid, memory_mib=one.memory_mib
                )
        return found

    def with_mps(self, layouts: Mapping[str, GpuLayout]) -> GpuState:
        """The same with other MPS daemons: what each serves, by UUID of GPU or MIG device."""
        return replace(
            self,
            mps=layouts.get(self.uuid),
            instances=tuple(
                replace(one, mps=layouts.get(one.mig_uuid or "")) for one in self.instances
            ),
        )

    def as_found(self) -> GpuLayout:
        """The layout that describes the GPU as it is, for one that nobody gave a layout.

        A GPU in MIG mode stays in it, with the instances that it has: its mode is never
        changed to tidy up.
        """
        counts: dict[MigProfile, int] = {}
        for placed in self.placed:
            if not placed.profile.is_split:
                counts[placed.profile] = counts.get(placed.profile, 0) + 1
        if not self.mig_enabled:
            return GpuLayout(mode=Mode.EXCLUSIVE)
        return GpuLayout(mode=Mode.MIG, sizes=tuple(counts.items()))


def gpu_state(
    gpu: nvml.ObservedGpu,
    processes: Iterable[nvml.GpuProcess] | None = (),
    *,
    before: GpuState | None = None,
    mps: Mapping[str, GpuLayout] | None = None,
    mps_servers: Collection[int] = (),
) -> GpuState:
    """What the driver says about one GPU.

    Args:
        gpu: The driver's answer.
        processes: Who runs on it; None where the driver does not say.
        before: What was known; used where the GPU cannot be read now.
        mps: What MPS daemons serve, by UUID of GPU or MIG device.
        mps_servers: Process ids of their servers, as they say themselves.
    """
    if not gpu.readable and before is not None:
        return replace(before, lost=True).with_mps(mps or {})
    instances = gpu.instances if gpu.readable else ()
    return GpuState(
        index=gpu.index,
        uuid=gpu.uuid,
        board=gpu.board,
        product=gpu.product,
        memory_mib=gpu.memory_mib,
        pci_bus_id=gpu.pci_bus_id,
        numa_node=gpu.numa_node,
        mig_enabled=gpu.mig_mode,
        mig_pending=gpu.mig_pending,
        instances=tuple(_instance(one) for one in instances),
        processes=_processes(processes or (), mps_servers),
        processes_listed=processes is not None,
        lost=not gpu.readable,
        minor=gpu.minor,
    ).with_mps(mps or {})


def _processes(
    listed: Iterable[nvml.GpuProcess], mps_servers: Collection[int]
) -> tuple[GpuProcess, ...]:
    found = (
        GpuProcess(pid=one.pid, gi_id=one.gi_id, mps_server=one.pid in mps_servers)
        for one in listed
    )
    return tuple(sorted(found, key=lambda process: process.pid))


def _instance(one: nvml.MigInstance) -> Instance:
    return Instance(
        profile=one.profile,
        placement=one.placement,
        gi_id=one.gi_id,
        mig_uuid=one.uuid,
        memory_mib=one.memory_mib,
    )
