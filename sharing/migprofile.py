"""Names of MIG profiles, as NVIDIA writes them: ``1g.10gb``, ``1c.3g.40gb``, ``1g.24gb+me``.

The number before ``gb`` is a label, never a quantity: the true memory of a MIG profile is in the
catalogue or comes from the driver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Final

from sharing.errors import SizeError, shown

ATTRIBUTES: Final = ("", "+me", "+me.all", "+gfx", "-me")
"""Known suffixes: media engine, all media engines, graphics, without media engine.

Source: NVIDIA MIG User Guide, "Profile naming"; nvml.h, the ``NVML_GPU_INSTANCE_PROFILE_*`` list.
"""

_FORM: Final = re.compile(
    r"(?:(?P<compute>[1-9])c\.)?(?P<gpu>[1-9])g\.(?P<memory>[1-9][0-9]{0,3})gb"
    r"(?P<attributes>\+me\.all|\+me|\+gfx|-me)?",
    re.ASCII,
)
_EXPECTED: Final = "a MIG profile '<slices>g.<memory>gb' with an optional '+me', '+gfx' or '-me'"


@total_ordering
@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One MIG profile by name. Ordered by slices, then memory, then attributes."""

    gpu_slices: int
    memory_gb: int
    """The label's number, not a quantity."""
    compute_slices: int = 0
    """Slices of the compute instance; equal to ``gpu_slices`` when it takes all of them."""
    attributes: str = ""

    def __post_init__(self) -> None:
        if self.compute_slices == 0:
            object.__setattr__(self, "compute_slices", self.gpu_slices)
        spelled = _FORM.fullmatch(str(self))
        if spelled is None or self.compute_slices > self.gpu_slices:
            raise SizeError(
                "MIG profile",
                f"{shown(str(self))} cannot exist",
                expected=_EXPECTED,
                example="1g.10gb",
            )

    @classmethod
    def parse(cls, text: object) -> MigProfile:
        """The MIG profile that a text names.

        Raises:
            SizeError: The text does not follow the grammar.
        """
        match = _FORM.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise SizeError(
                "MIG profile",
                f"{shown(text)} does not follow the grammar",
                expected=_EXPECTED,
                example="1g.10gb",
            )
        return cls(
            gpu_slices=int(match["gpu"]),
            memory_gb=int(match["memory"]),
            compute_slices=int(match["compute"] or match["gpu"]),
            attributes=match["attributes"] or "",
        )

    @classmethod
    def from_token(cls, token: str) -> MigProfile:
        """The MIG profile that a resource name spells, ``+`` written as ``.``.

        Raises:
            SizeError: The token does not follow the grammar.
        """
        for attributes in sorted(ATTRIBUTES, key=len, reverse=True):
            if attributes.startswith("+") and token.endswith("." + attributes[1:]):
                return cls.parse(token[: -len(attributes)] + attributes)
        return cls.parse(token)

    @property
    def resource_token(self) -> str:
        """The spelling inside a resource name: NVIDIA writes ``+`` as ``.``.

        Source: NVIDIA/k8s-device-plugin, the ``mixed`` MIG strategy.
        """
        return str(self).replace("+", ".")

    @property
    def is_split(self) -> bool:
        """Whether the compute instance takes only some of the slices; has no resource name."""
        return self.compute_slices != self.gpu_slices

    def __str__(self) -> str:
        prefix = f"{self.compute_slices}c." if self.is_split else ""
        return f"{prefix}{self.gpu_slices}g.{self.memory_gb}gb{self.attributes}"

    def __lt__(self, other: MigProfile) -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[int, int, int, str]:
        return (self.gpu_slices, self.memory_gb, self.compute_slices, self.attributes)
