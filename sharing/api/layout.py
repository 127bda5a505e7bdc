"""GPULayout: what the GPUs of the nodes that a selector picks are cut into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from sharing.api.model import ApiModel
from sharing.api.texts import CutMode
from sharing.layout import GpuLayout, GpuSelector, LayoutEntry
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.size import parse_size
from sharing.timeslice import TimeSlice


class CutSpec(ApiModel):
    """What MIG instances are cut into further: ``{mode: mps, sizes: {1of4: 4}}``."""

    mode: CutMode
    sizes: Annotated[dict[str, Annotated[int, Field(ge=1, le=48)]], Field(min_length=1)]
    """Parts of one instance, and how many of each."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.to_layout()
        return self

    def to_layout(self) -> GpuLayout:
        """The layout of one instance that this stands for.

        Raises:
            InputError: The sizes do not fit an instance.
        """
        sizes = tuple((parse_size(size), count) for size, count in self.sizes.items())
        return GpuLayout(mode=self.mode, sizes=sizes)


class LayoutSpec(ApiModel):
    """What one GPU is cut into: ``{mode: mps, sizes: {1of2: 1, 1of4: 2}, pool: team-a}``."""

    mode: Mode
    sizes: dict[str, Annotated[int, Field(ge=1, le=48)]] = Field(default_factory=dict)
    pool: Annotated[str, Field(max_length=63)] | None = None
    time_slice: TimeSlice | None = None
    """How long each turn lasts under time-slicing; as the driver has it where it is left out."""
    cut: Annotated[dict[str, CutSpec], Field(max_length=8)] = Field(default_factory=dict)
    """By MIG profile: what each of its instances is cut into further, under mode mig."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.to_layout()
        return self

    def to_layout(self) -> GpuLayout:
        """The layout that this stands for.

        Raises:
            InputError: The sizes do not fit the mode or the GPU.
        """
        sizes = tuple((parse_size(size), count) for size, count in self.sizes.items())
        return GpuLayout(
            mode=self.mode,
            sizes=sizes,
            pool=self.pool,
            time_slice=self.time_slice,
            cuts=tuple(
                (MigProfile.parse(profile), cut.to_layout()) for profile, cut in self.cut.items()
            ),
        )

    @classmethod
    def from_layout(cls, layout: GpuLayout) -> LayoutSpec:
        """The spelling of a layout."""
        return cls(
            mode=layout.mode,
            sizes=_spelled(layout),
            pool=layout.pool,
            time_slice=layout.time_slice,
            cut={
                str(profile): CutSpec.model_validate({"mode": cut.mode, "sizes": _spelled(cut)})
                for profile, cut in layout.cuts
            },
        )

    @model_serializer(mode="wrap")
    def _leave_out(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Layouts that cut no instance are written as they always were."""
        written: dict[str, Any] = write(self)
        if not written.get("cut"):
            written.pop("cut", None)
        return written


def _spelled(layout: GpuLayout) -> dict[str, int]:
    return {str(size): count for size, count in layout.sizes}


class LayoutEntrySpec(LayoutSpec):
    """One line of a layout list: which GPUs, and what each of them becomes."""

    gpus: Annotated[str, Field(min_length=1, max_length=1024)]

    @model_validator(mode="before")
    @classmethod
    def _index(cls, value: Any) -> Any:
        """``gpus: 2`` is what people write for one GPU; YAML reads a number."""
        if isinstance(value, Mapping) and type(value.get("gpus")) is int:
            return {**value, "gpus": str(value["gpus"])}
        return value

    @model_validator(mode="after")
    def _check_selector(self) -> Self:
        GpuSelector(self.gpus)
        return self

    def to_entry(self) -> LayoutEntry:
        """The entry that this stands for."""
        return LayoutEntry(gpus=GpuSelector(self.gpus), layout=self.to_layout())


class LabelRequirement(ApiModel):
    """One expression of a label selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class LabelSelector(ApiModel):
    """A Kubernetes label selector; empty selects everything."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: tuple[LabelRequirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether labels fulfil all of its requirements."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            _fulfils(requirement, labels) for requirement in self.match_expressions
        )


def _fulfils(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None


class PlannerSpec(ApiModel):
    """Whether the controller may choose layouts itself for pods that wait."""

    enabled: bool = False
    modes: tuple[Mode, ...] = ()
    reserve: Annotated[int, Field(ge=0)] = 0
    """GPUs that the planner leaves exclusive."""


class GpuLayoutSpec(ApiModel):
    """Spec of a GPULayout."""

    node_selector: LabelSelector = Field(default_factory=LabelSelector)
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Where several layouts select a node, the highest priority wins; ties by name."""
    gpus: Annotated[tuple[LayoutEntrySpec, ...], Field(max_length=64)] = ()
    planner: PlannerSpec = Field(default_factory=PlannerSpec)

    def entries(self) -> tuple[LayoutEntry, ...]:
        """Its entries in order."""
        return tuple(entry.to_entry() for entry in self.gpus)
