"""How fast a rotation goes where nobody wants to wait a month."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Self

from certs.keeper import Pace
from certs.schedule import RotationSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The times of a rotation in seconds; see ``RotationSettings`` and ``Pace``."""

    life_s: float = 86_400.0
    backdate_s: float = 3_600.0
    propagation_s: float = 1.0
    settle_s: float = 1.5
    overlap_s: float = 2.0
    poll_s: float = 0.5
    jitter_s: float = 0.05
    silence_s: float = 300.0

    def settings(self, names: tuple[str, ...]) -> RotationSettings:
        """The same for the rotation."""
        return RotationSettings(
            names=names,
            life=timedelta(seconds=self.life_s),
            backdate=timedelta(seconds=self.backdate_s),
            propagation=timedelta(seconds=self.propagation_s),
            settle=timedelta(seconds=self.settle_s),
            overlap=timedelta(seconds=self.overlap_s),
        )

    @property
    def pace(self) -> Pace:
        """The same for the keeper."""
        # An API server that restarts is away for longer than these rotations take.
        return Pace(poll_s=self.poll_s, jitter_s=self.jitter_s, silence_s=self.silence_s)

    def save(self, path: Path) -> Path:
        """Write them down for a replica."""
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def load(cls, path: Path) -> Self:
        """What was written down."""
        return cls(**json.loads(path.read_text("utf-8")))


ASKED = Times()
"""Rotations come when they are asked for, some three seconds each."""
UNHURRIED = Times(propagation_s=3.0, settle_s=8.0, overlap_s=10.0)
"""The same for a long run. On a busy machine an API server may need seconds for reviews that it
began by an older bundle, and a replica may need seconds to see a promotion: to serve or to forget
sooner is to break what the rotation goes by."""
SHORT_LIVED = Times(life_s=28.0, backdate_s=2.0, propagation_s=3.0, settle_s=5.0, overlap_s=6.0)
"""Rotations come by themselves, one every 17 s: at 60 to 70 % of a life of 30 s."""
BRIEF = Times(life_s=10.0, backdate_s=1.0, settle_s=1.5, overlap_s=2.0)
"""The same, one every 6 s, for who has no patience."""
