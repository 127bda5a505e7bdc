"""SharingProfile: a namespace's policy on GPUs.

What the fields allow is checked here and, in the same words, by the CRD (``crd``). What a
decision needs from a profile is derived once, when it is read.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from sharing.api.choices import Enforcement, MultiGpu, System, WholeGpu
from sharing.api.model import ApiModel, StatusModel, parse_model
from sharing.api.node import Condition
from sharing.api.sameness import Same
from sharing.api.texts import (
    LabelKey,
    LabelValue,
    MemoryQuantity,
    MigText,
    ObjectName,
    PartText,
    PoolText,
)
from sharing.api.toleration import Toleration
from sharing.errors import InputError, shown
from sharing.migprofile import MigProfile
from sharing.mode import Isolation, Mode
from sharing.quantity import mib_of
from sharing.size import OneOf, parse_size

FALLBACK_SIZE: Final = OneOf(4)
"""What a plain GPU request becomes where a profile names no size."""


class MemoryPolicy(ApiModel):
    """Bounds on asks by memory."""

    max: MemoryQuantity | None = None
    """The most that a container may ask for by ``gpu.sharing/memory``."""
    default: MemoryQuantity | None = None
    """What a plain ``nvidia.com/gpu: 1`` asks for, in place of ``defaultSize``."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max is None or self.default is None:
            return self
        if mib_of(self.default) > mib_of(self.max):
            raise InputError(
                "memory",
                f"default {self.default} is above max {self.max}",
                fix="raise max or lower default",
            )
        return self


class SharingProfileSpec(ApiModel):
    """Spec of a SharingProfile."""

    mode: Mode | None = None
    """How GPUs are shared; in place of ``modes``."""
    modes: Annotated[tuple[Mode, ...], Field(min_length=1, max_length=4)] | None = None
    """In order of preference: the first one that some ready node can serve."""
    default_size: PartText | None = None
    """What a plain ``nvidia.com/gpu: 1`` becomes; under mig the smallest MIG profile at least as
    large. 1of4 where it is left out and allowed."""
    mig_profile: MigText | None = None
    """What a plain ``nvidia.com/gpu: 1`` becomes under mig, in place of ``defaultSize``."""
    allowed_modes: Annotated[tuple[Mode, ...], Field(max_length=4)] | None = None
    """What a pod may ask for by ``gpu.sharing/mode`` or a resource name; the profile's first mode
    needs no permission. The profile's modes where it is left out."""
    allowed_sizes: Annotated[tuple[PartText, ...], Field(min_length=1, max_length=48)] | None = None
    """The ``1ofN`` that containers may get; any where it is left out."""
    min_isolation: Isolation = Isolation.NONE
    """The weakest grade of isolation that a share may have."""
    whole_gpu: Annotated[WholeGpu, Field(alias="wholeGPU")] = WholeGpu.CONVERT
    """What becomes of a plain ``nvidia.com/gpu``: a share, itself, or a refusal."""
    multi_gpu: Annotated[MultiGpu | None, Field(alias="multiGPU")] = None
    """What becomes of a plain ``nvidia.com/gpu`` above 1. Where it is left out: exclusive where
    whole GPUs are given anyway (mode exclusive, wholeGPU keep), else deny."""
    mig_profiles: Annotated[tuple[MigText, ...], Field(min_length=1, max_length=64)] | None = None
    """The MIG profiles that containers may get; any where it is left out."""
    memory: MemoryPolicy = Field(default_factory=MemoryPolicy)
    """Bounds on asks by memory."""
    pool: PoolText | None = None
    """The pool whose GPUs the namespace uses, and no others."""
    node_selector: Annotated[dict[LabelKey, LabelValue], Field(max_length=64)] = Field(
        default_factory=dict
    )
    """Added to pods that get a share; never over what the pod says."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=64)] = ()
    """Added to pods that get a share."""
    runtime_class_name: ObjectName | None = None
    """Set on pods that get a share and name none."""
    scheduler_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Set on pods that get a share and use the default scheduler."""
    hide_gpus: Annotated[bool, Field(alias="hideGPUs")] = False
    """Set NVIDIA_VISIBLE_DEVICES=void in containers without a grant."""
    privileged: Literal["deny", "allow"] = "deny"
    """Whether a pod with a share may hold what sees all GPUs of a node: privileged containers,
    host namespaces, device folders of the host."""
    on_unsatisfiable: Literal["deny", "admit"] = "deny"
    """What becomes of a request that no ready node can serve: a refusal, or a pod that waits."""
    on_fault: Literal["ignore", "evict"] = "ignore"
    """What becomes of pods whose GPU is faulty."""
    on_memory_excess: Literal["ignore", "evict"] = "ignore"
    """What becomes of pods that use more GPU memory than their share has, where nothing keeps them
    within: under time-slicing, and under mps with several processes."""
    accounting: bool = False
    """Add the share's worth as ``gpu.sharing/milli-gpu`` to its container."""
    workloads: Literal["warn", "deny"] = "warn"
    """What becomes of a Deployment, Job and the like whose pods would be refused: a warning, or a
    refusal of the workload itself."""
    compatibility: Annotated[tuple[System, ...], Field(max_length=7)] = ()
    """Other systems whose requests are read as well, while a cluster moves over."""
    enforcement: Enforcement = Enforcement.ENFORCE
    """Whether verdicts take effect. Warn and audit change nothing and record what would."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_modes()
        self._check_sizes()
        self._check_mig()
        self._check_compatibility()
        return self

    @property
    def ordered_modes(self) -> tuple[Mode, ...]:
        """Its modes in order of preference."""
        return (self.mode,) if self.mode is not None else self.modes or ()

    def _check_modes(self) -> None:
        if (self.mode is None) == (self.modes is None):
            raise InputError(
                "mode and modes",
                "exactly one of them is needed",
                fix="set mode, or set modes for an order of preference",
                example="mode: mps",
            )
        if len(set(self.ordered_modes)) != len(self.ordered_modes):
            raise InputError("modes", "a mode is listed twice", fix="list each mode once")
        if all(mode.isolation.rank < self.min_isolation.rank for mode in self.ordered_modes):
            listed = ", ".join(f"{mode} ({mode.isolation})" for mode in self.ordered_modes)
            raise InputError(
                "minIsolation",
                f"{self.min_isolation} is above what its modes give: {listed}",
                fix="lower minIsolation or choose a mode that isolates better",
                example="mode: mig",
            )

    def _check_sizes(self) -> None:
        if self.default_size is None:
            return
        if self.allowed_sizes is not None and self.default_size not in self.allowed_sizes:
            raise InputError(
                "defaultSize",
                f"{self.default_size} is not among allowedSizes {', '.join(self.allowed_sizes)}",
                fix="add it to allowedSizes, or choose one of them",
            )
        if self.memory.default is not None:
            raise InputError(
                "defaultSize and memory.default",
                "both say what a plain nvidia.com/gpu: 1 becomes",
                fix="keep one of them",
            )

    def _check_compatibility(self) -> None:
        listed = self.compatibility
        if len(set(listed)) != len(listed):
            raise InputError("compatibility", "a system is listed twice", fix="list each once")
        if System.ALIYUN in listed and System.ALIYUN_MIB in listed:
            raise InputError(
                "compatibility",
                "aliyun and aliyun-mib read one name in two units",
                fix="keep the one that the cluster was installed with",
                example="compatibility: [aliyun]",
            )

    def _check_mig(self) -> None:
        if self.mig_profile is None:
            return
        if self.mig_profiles is not None and self.mig_profile not in self.mig_profiles:
            raise InputError(
                "migProfile",
                f"{self.mig_profile} is not among migProfiles {', '.join(self.mig_profiles)}",
                fix="add it to migProfiles, or choose one of them",
            )
        if Mode.MIG not in self.ordered_modes + (self.allowed_modes or ()):
            raise InputError(
                "migProfile",
                f"{self.mig_profile} can never be used: mig is in neither mode, modes nor "
                "allowedModes",
                fix="remove it or add mig",
                example="modes: [mig, mps]",
            )


class GovernedNamespace(StatusModel):
    """One namespace that a profile governs."""

    name: str
    pods: int = 0
    """Pods with a grant."""


class GrantCount(StatusModel):
    """How many containers hold a grant of one share class."""

    resource: str
    containers: int = 0


class SharingProfileStatus(StatusModel):
    """Status of a SharingProfile."""

    observed_generation: int | None = None
    namespace_count: int = 0
    namespaces: tuple[GovernedNamespace, ...] = ()
    grants: tuple[GrantCount, ...] = ()
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SharingProfile:
    """A profile with what a decision needs from it, derived once. Compared by identity."""

    name: str
    spec: SharingProfileSpec
    modes: tuple[Mode, ...] = field(init=False)
    """In order of preference, without those that isolate too little."""
    permitted_modes: frozenset[Mode] = field(init=False)
    """What a pod may name itself."""
    sizes: tuple[OneOf, ...] | None = field(init=False)
    """Allowed sizes, smallest first; None for any."""
    default_size: OneOf = field(init=False)
    mig_profiles: frozenset[MigProfile] | None = field(init=False)
    """Allowed MIG profiles; None for any."""
    default_mig_profile: MigProfile | None = field(init=False)
    default_memory_mib: int | None = field(init=False)
    most_memory_mib: int | None = field(init=False)
    multi_gpu: MultiGpu = field(init=False)
    node_selector: tuple[tuple[str, str], ...] = field(init=False)
    """Sorted by key."""
    tolerations: tuple[Mapping[str, Any], ...] = field(init=False)
    """As in a pod."""
    places: bool = field(init=False)
    """Whether it says anything about where and by whom pods are run."""

    def __post_init__(self) -> None:
        spec = self.spec
        modes = tuple(m for m in spec.ordered_modes if m.isolation.rank >= spec.min_isolation.rank)
        allowed = spec.ordered_modes if spec.allowed_modes is None else spec.allowed_modes
        keeps = spec.whole_gpu is WholeGpu.KEEP or modes[0] is Mode.EXCLUSIVE
        derived: dict[str, Any] = {
            "modes": modes,
            "permitted_modes": frozenset((*allowed, modes[0])),
            "sizes": _parts(spec.allowed_sizes),
            "default_size": _default_size(spec),
            "mig_profiles": _mig_profiles(spec.mig_profiles),
            "default_mig_profile": MigProfile.parse(spec.mig_profile) if spec.mig_profile else None,
            "default_memory_mib": _mib(spec.memory.default),
            "most_memory_mib": _mib(spec.memory.max),
            "multi_gpu": spec.multi_gpu or (MultiGpu.EXCLUSIVE if keeps else MultiGpu.DENY),
            "node_selector": tuple(sorted(spec.node_selector.items())),
            "tolerations": tuple(
                t.model_dump(by_alias=True, exclude_none=True) for t in spec.tolerations
            ),
            "places": bool(
                spec.node_selector
                or spec.tolerations
                or spec.scheduler_name
                or spec.runtime_class_name
                or spec.compatibility
            ),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def named(self, name: str) -> SharingProfile:
        """Another profile of the same spec."""
        other = copy.copy(self)
        object.__setattr__(other, "name", name)
        return other


_SAME: Final = Same[SharingProfile](most=512)
"""Profiles of one spec share all that is derived from it."""


def parse_profile(manifest: object) -> SharingProfile:
    """The profile that a manifest describes.

    Raises:
        InputError: It is no SharingProfile, or a field is wrong.
    """
    metadata = manifest.get("metadata") if isinstance(manifest, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(manifest, Mapping) or not isinstance(name, str) or not name:
        raise InputError(
            "SharingProfile", "it has no metadata.name", fix="give it a name", example="inference"
        )
    subject = f"SharingProfile {shown(name)}"
    spec = manifest.get("spec")
    alike = _SAME.of(
        spec, lambda: SharingProfile(name, parse_model(SharingProfileSpec, spec, subject))
    )
    return alike.named(name)


@lru_cache(maxsize=1)
def builtin_profiles() -> Mapping[str, SharingProfile]:
    """The profiles behind a bare ``gpu.sharing/mode`` label, by the mode's name."""
    return {mode.value: SharingProfile(mode.value, SharingProfileSpec(mode=mode)) for mode in Mode}


def _parts(texts: tuple[str, ...] | None) -> tuple[OneOf, ...] | None:
    if texts is None:
        return None
    sizes = {size for size in map(parse_size, texts) if isinstance(size, OneOf)}
    return tuple(sorted(sizes))


def _default_size(spec: SharingProfileSpec) -> OneOf:
    if spec.default_size is not None:
        size = parse_size(spec.default_size)
        return size if isinstance(size, OneOf) else FALLBACK_SIZE
    allowed = _parts(spec.allowed_sizes)
    if allowed is None:
        return FALLBACK_SIZE
    return next((size for size in allowed if size >= FALLBACK_SIZE), allowed[-1])


def _mig_profiles(texts: tuple[str, ...] | None) -> frozenset[MigProfile] | None:
    return None if texts is None else frozenset(map(MigProfile.parse, texts))


def _mib(value: str | int | None) -> int | None:
    return None if value is None else mib_of(value)
