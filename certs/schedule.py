"""When things are due: the times of a rotation and the rules that keep them sane."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from certs.authority import BACKDATE, LEAF_LIFE
from sharing.errors import InputError

if TYPE_CHECKING:
    from certs.leaf import Leaf

MAX_AUTHORITIES: Final = 3
"""One that retires, the current one, and the next."""

_RENEW_FROM: Final = 0.60
_RENEW_SPREAD: Final = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationSettings:
    """The times of a rotation.

    Attributes:
        names: Names to serve under; the first is the one that API servers ask for.
        life: Life of a leaf and of the authority made for it.
        propagation: How long until every API server uses a patched bundle.
        settle: How long until every replica serves a promoted leaf.
        overlap: How long an authority stays trusted after its leaf was replaced.
        backdate: How long before now both begin to be valid, for API servers whose clocks are late.
    """

    names: tuple[str, ...]
    life: timedelta = LEAF_LIFE
    propagation: timedelta = timedelta(seconds=60)
    settle: timedelta = timedelta(minutes=10)
    overlap: timedelta = timedelta(hours=24)
    backdate: timedelta = BACKDATE

    def __post_init__(self) -> None:
        if not self.names:
            raise InputError("certificate rotation", "no name to serve under was given")
        if not timedelta() <= self.propagation <= self.settle <= self.overlap:
            raise InputError(
                "certificate rotation",
                f"propagation {self.propagation}, settle {self.settle}, overlap {self.overlap}",
                expected="each at most as long as the one after it",
            )
        # What is left after the latest renewal must be enough for a whole rotation.
        lead = self.life * (1 - _RENEW_FROM - _RENEW_SPREAD)
        if lead < self.propagation + self.settle:
            raise InputError(
                "certificate rotation",
                f"a life of {self.life} leaves {lead} for a renewal",
                expected=f"at least propagation and settle, {self.propagation + self.settle}",
                fix="lengthen the life or shorten the others",
            )


def renew_at(leaf: Leaf) -> datetime:
    """When a leaf is to be renewed: at a point in 60 to 70 % of its life.

    The point is drawn by the serial number, so that clusters differ and replicas agree.
    """
    draw = (leaf.certificate.serial_number & 0xFFFF) / 0x10000
    return leaf.not_before + (leaf.not_after - leaf.not_before) * (
        _RENEW_FROM + _RENEW_SPREAD * draw
    )
