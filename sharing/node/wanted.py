"""What each GPU of a node shall be: from GPUNode.spec, or from a file of layout entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sharing.api.layout import LayoutSpec
from sharing.api.node import GpuNodeSpec, WantedGpu
from sharing.layout import GpuLayout, LayoutEntry, assign
from sharing.node.observed import GpuState


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLayout:
    """One GPU's wanted layout."""

    layout: GpuLayout
    cordoned: bool = False
    """Offers no share; what runs goes on."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wanted layouts of a node's GPUs by UUID.

    A GPU that is not named keeps the layout that it served last; one that never served any keeps
    what it is: a GPU in MIG mode stays so, any other is exclusive.
    """

    by_uuid: Mapping[str, WantedLayout] = field(default_factory=dict)

    @classmethod
    def from_spec(cls, spec: GpuNodeSpec) -> Wanted:
        """What a GPUNode's spec says; the last of two lines for one GPU wins."""
        return cls(
            {
                gpu.uuid: WantedLayout(layout=gpu.layout.to_layout(), cordoned=gpu.cordoned)
                for gpu in spec.gpus
            }
        )

    @classmethod
    def from_entries(cls, entries: Iterable[LayoutEntry], gpus: Sequence[GpuState]) -> Wanted:
        """What an ordered list of selectors says about these GPUs."""
        pairs = assign(entries, [gpu.identity for gpu in gpus])
        return cls({gpu.uuid: WantedLayout(layout=layout) for gpu, layout in pairs})

    @property
    def cordoned(self) -> tuple[str, ...]:
        """The GPUs that people took out, by UUID."""
        return tuple(sorted(uuid for uuid, one in self.by_uuid.items() if one.cordoned))

    def to_spec(self) -> GpuNodeSpec:
        """The spelling, by UUID."""
        return GpuNodeSpec(
            gpus=tuple(
                WantedGpu(
                    uuid=uuid,
                    layout=LayoutSpec.from_layout(wanted.layout),
                    cordoned=wanted.cordoned,
                )
                for uuid, wanted in sorted(self.by_uuid.items())
            )
        )

    def of(self, gpu: GpuState, applied: GpuLayout | None = None) -> WantedLayout:
        """What one GPU shall be.

        Args:
            gpu: The GPU.
            applied: The layout that it served last, if that is known.
        """
        named = self.by_uuid.get(gpu.uuid)
        return named or WantedLayout(layout=applied or gpu.as_found())
