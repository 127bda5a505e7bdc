"""How GPUs are shared, and how well sharers are kept apart."""

from __future__ import annotations

from enum import StrEnum

from sharing.errors import InputError, shown


class Isolation(StrEnum):
    """How well a share is kept apart from the others on its GPU, weakest first."""

    NONE = "none"
    """Turns on the same context; one tenant can take all memory or crash the others."""
    LIMITS = "limits"
    """Memory and threads are capped per process; one fault domain."""
    HARDWARE = "hardware"
    """Memory, caches and engines are partitioned by the GPU itself."""
    DEVICE = "device"
    """The whole GPU."""

    @property
    def rank(self) -> int:
        """Position from weakest (0) to strongest (3)."""
        return _RANKS[self]


_RANKS = {grade: rank for rank, grade in enumerate(Isolation)}


class Mode(StrEnum):
    """The mechanism that makes shares of a GPU."""

    EXCLUSIVE = "exclusive"
    TIME_SLICING = "time-slicing"
    MPS = "mps"
    MIG = "mig"

    @property
    def isolation(self) -> Isolation:
        """The grade that this mechanism gives; a fact of the hardware and of MPS.

        Source: NVIDIA MPS documentation, "Memory protection" and "Error containment"; MIG User
        Guide, "Concepts".
        """
        return _ISOLATION[self]

    @property
    def token(self) -> str:
        """The spelling inside resource names and node labels."""
        return _TOKENS[self]


_ISOLATION = {
    Mode.EXCLUSIVE: Isolation.DEVICE,
    Mode.TIME_SLICING: Isolation.NONE,
    Mode.MPS: Isolation.LIMITS,
    Mode.MIG: Isolation.HARDWARE,
}
_TOKENS = {
    Mode.EXCLUSIVE: "gpu",
    Mode.TIME_SLICING: "timeslice",
    Mode.MPS: "mps",
    Mode.MIG: "mig",
}


def parse_mode(text: object) -> Mode:
    """The mode that a text names.

    Raises:
        InputError: The text names none.
    """
    try:
        return Mode(str(text))
    except ValueError:
        raise InputError(
            "mode", f"{shown(text)} is no mode", expected=f"one of {', '.join(Mode)}", example="mps"
        ) from None
