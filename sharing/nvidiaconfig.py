"""NVIDIA's device-plugin configuration file as a layout source, so that clusters can move over.

    version: v1
    sharing:
      timeSlicing:
        resources:
        - {name: nvidia.com/gpu, replicas: 4, devices: [0, 1]}
      mps:
        resources:
        - {name: nvidia.com/gpu, replicas: 2, devices: [GPU-…], rename: team-a}

``replicas: 4`` becomes ``{1of4: 4}``. ``devices`` and ``rename``, which NVIDIA's plugin reads and
throws away, count here: a layout belongs to a GPU, so both sections may be used side by side (MPS
first), and a rename is a pool. A GPU that nothing selects is exclusive, one in MIG mode keeps
its instances. What cannot be carried over is said, never dropped without a word.

Source: NVIDIA/k8s-device-plugin, api/config/v1 (config.go, sharing.go, replicas.go, resources.go).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from sharing.api.model import ApiModel, parse_model
from sharing.errors import InputError, shown
from sharing.layout import EXCLUSIVE_LAYOUT, GpuIdentity, GpuLayout
from sharing.mode import Mode
from sharing.shareclass import check_pool
from sharing.size import MOST_PARTS, OneOf

_KEYS: Final = frozenset({"sharing", "flags", "resources", "imex"})
_DOMAIN: Final = "nvidia.com/"
_GPU: Final = "gpu"
_GPU_INDEX: Final = re.compile(r"[0-9]{1,3}", re.ASCII)
_MIG_DEVICE: Final = re.compile(r"[0-9]{1,3}:[0-9]{1,3}|MIG-.{1,80}", re.ASCII)
_UUID: Final = re.compile(r"GPU-[0-9A-Za-z-]{1,80}", re.ASCII)
_SHARED: Final = ".shared"
_EXAMPLE: Final = "{name: nvidia.com/gpu, replicas: 4, devices: [0, 1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpu:
    """One GPU of the node that the file is read for."""

    identity: GpuIdentity
    in_mig_mode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """What the file makes of a node's GPUs."""

    layouts: tuple[tuple[GpuIdentity, GpuLayout], ...]
    """GPUs in MIG mode are left out: they stay as they are."""
    notes: tuple[str, ...]
    """What could not be carried over, or means something else here; a sentence each."""


class ReplicatedResource(ApiModel):
    """One entry of ``resources``: which devices are offered how many times."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    replicas: Annotated[int, Field(ge=2)]
    rename: Annotated[str, Field(max_length=63)] | None = None
    devices: Literal["all"] | Annotated[int, Field(ge=1)] | tuple[int | str, ...] = "all"

    @field_validator("devices")
    @classmethod
    def _check_devices(cls, value: str | int | tuple[int | str, ...]) -> Any:
        for one in value if isinstance(value, tuple) else ():
            if not any(form.fullmatch(str(one)) for form in (_GPU_INDEX, _MIG_DEVICE, _UUID)):
                raise InputError(
                    "devices",
                    f"{shown(one)} names no device",
                    expected="GPU indices, MIG indices g:m, or UUIDs",
                    example='devices: [0, "1:0", "GPU-…"]',
                )
        return value

    @model_validator(mode="after")
    def _check_replicas(self) -> Self:
        if self.replicas > MOST_PARTS:
            raise InputError(
                "replicas",
                f"{self.replicas} shares of one GPU",
                expected=f"2 to {MOST_PARTS}",
                fix="take fewer replicas",
                example=_EXAMPLE,
            )
        return self

    @property
    def bare_name(self) -> str:
        """Without the domain, which NVIDIA's plugin adds where it is left out."""
        return self.name.removeprefix(_DOMAIN)

    def pool(self) -> str | None:
        """The pool that ``rename`` asks for; None if it names none."""
        bare = (self.rename or "").removeprefix(_DOMAIN)
        if not bare or bare == _GPU:
            return None
        try:
            check_pool(bare)
        except InputError:
            return None
        return bare

    def selects(self, gpu: GpuIdentity, rank: int) -> bool:
        """Whether it is about a GPU.

        Args:
            gpu: The GPU.
            rank: Its place among the GPUs that are not in MIG mode, from 0.
        """
        if self.devices == "all":
            return True
        if isinstance(self.devices, int):
            return rank < self.devices
        return any(str(one) in (str(gpu.index), gpu.uuid) for one in self.devices)


class Replicas(ApiModel):
    """``sharing.timeSlicing`` or ``sharing.mps``."""

    rename_by_default: bool = False
    fail_requests_greater_than_one: bool | None = None
    resources: Annotated[tuple[ReplicatedResource, ...], Field(min_length=1)]


class Sharing(ApiModel):
    """``sharing``."""

    time_slicing: Replicas | None = None
    mps: Replicas | None = None


class NvidiaConfig(ApiModel):
    """The whole file."""

    version: Literal["v1", ""] = "v1"
    flags: dict[str, Any] = Field(default_factory=dict)
    resources: Any = None
    sharing: Sharing = Field(default_factory=Sharing)
    imex: Any = None

    def translate(self, gpus: Sequence[NodeGpu]) -> Translation:
        """What the GPUs of a node become.

        Args:
            gpus: All GPUs of the node.
        """
        ordered = sorted(gpus, key=lambda one: (one.identity.index, one.identity.uuid))
        plain = [one.identity for one in ordered if not one.in_mig_mode]
        layouts = tuple((gpu, self._layout(gpu, rank)) for rank, gpu in enumerate(plain))
        return Translation(layouts=layouts, notes=tuple(self._notes(ordered)))

    def _sections(self) -> Iterator[tuple[str, Mode, Replicas]]:
        """MPS first: with both NVIDIA's plugin serves MPS alone."""
        if self.sharing.mps is not None:
            yield "sharing.mps", Mode.MPS, self.sharing.mps
        if self.sharing.time_slicing is not None:
            yield "sharing.timeSlicing", Mode.TIME_SLICING, self.sharing.time_slicing

    def _layout(self, gpu: GpuIdentity, rank: int) -> GpuLayout:
        for _, mode, section in self._sections():
            for one in section.resources:
                if one.bare_name == _GPU and one.selects(gpu, rank):
                    sizes = ((OneOf(one.replicas), one.replicas),)
                    return GpuLayout(mode=mode, sizes=sizes, pool=one.pool())
        return EXCLUSIVE_LAYOUT

    def _notes(self, gpus: Sequence[NodeGpu]) -> Iterator[str]:
        for where, mode, section in self._sections():
            if section.rename_by_default:
                yield (
                    f"{where}.renameByDefault: shares are called gpu.sharing/{mode.token}-1ofN; a "
                    "SharingProfile with compatibility: [nvidia-shared] reads requests for "
                    "nvidia.com/gpu.shared"
                )
            if section.fail_requests_greater_than_one is False:
                yield (
                    f"{where}.failRequestsGreaterThanOne: false: a container gets one share; a "
                    "request above 1 is refused at admission"
                )
            for number, one in enumerate(section.resources):
                yield from _resource_notes(f"{where}.resources[{number}]", mode, one, gpus)
        yield from self._other_notes(gpus)

    def _other_notes(self, gpus: Sequence[NodeGpu]) -> Iterator[str]:
        strategy = self.flags.get("migStrategy")
        if strategy in ("single", "none") and any(one.in_mig_mode for one in gpus):
            yield (
                f"flags.migStrategy: {strategy}: MIG instances are offered as "
                "nvidia.com/mig-<profile>, as under mixed"
            )
        others = sorted(str(key) for key in self.flags if key != "migStrategy")
        if others:
            yield f"flags {', '.join(others)}: settings of NVIDIA's plugin, without meaning here"
        if self.resources is not None:
            yield "resources: names for GPUs by pattern are thrown away, as NVIDIA's plugin does"
        if self.imex is not None:
            yield "imex: IMEX channels are not handed out"


def read_nvidia_config(value: object, where: str) -> NvidiaConfig:
    """The configuration of one document.

    Raises:
        InputError: It is no such file of version v1; a misplaced key is named, where NVIDIA's
            plugin passes over it (NVIDIA/k8s-device-plugin#1433).
    """
    return parse_model(NvidiaConfig, value, where)


def is_nvidia_config(value: object) -> bool:
    """Whether a document is meant as NVIDIA's device-plugin configuration."""
    return isinstance(value, Mapping) and "kind" not in value and not _KEYS.isdisjoint(value)


def _resource_notes(
    where: str, mode: Mode, one: ReplicatedResource, gpus: Sequence[NodeGpu]
) -> Iterator[str]:
    if one.bare_name != _GPU:
        yield (
            f"{where}: {one.name} is not cut into shares; each MIG instance is one share, "
            "take a smaller MIG profile"
        )
        return
    if one.rename is not None:
        yield _renamed(where, mode, one)
    if isinstance(one.devices, tuple):
        yield from _device_notes(where, one.devices, gpus)
    there = sum(not gpu.in_mig_mode for gpu in gpus)
    if isinstance(one.devices, int) and one.devices > there:
        yield f"{where}.devices: {one.devices} GPUs are asked for, {there} are there"


def _renamed(where: str, mode: Mode, one: ReplicatedResource) -> str:
    pool = one.pool()
    if pool is not None:
        return (
            f"{where}.rename: {one.rename} is pool {pool} here: the resource is "
            f"{pool}.gpu.sharing/{mode.token}-1of{one.replicas}, for profiles of that pool"
        )
    hint = "nvidia-shared" if (one.rename or "").endswith(_SHARED) else ""
    how = f"; compatibility: [{hint}] of a SharingProfile reads the old name" if hint else ""
    return (
        f"{where}.rename: {shown(one.rename)} is no pool's name, so it is not carried over; the "
        f"resource is gpu.sharing/{mode.token}-1of{one.replicas}{how}"
    )


def _device_notes(
    where: str, devices: Sequence[int | str], gpus: Sequence[NodeGpu]
) -> Iterator[str]:
    known = {name: one for one in gpus for name in (str(one.identity.index), one.identity.uuid)}
    for device in map(str, devices):
        if _MIG_DEVICE.fullmatch(device):
            yield f"{where}.devices: {device} is a MIG device, which is one share as it is"
        elif device not in known:
            yield f"{where}.devices: {device} is no GPU of this node"
        elif known[device].in_mig_mode:
            yield f"{where}.devices: GPU {device} is in MIG mode and keeps its instances"
