"""The node's record of the plan under way, on disk before each step is done.

The next plan is always made from what the driver says, so the journal is not needed to go on. It
says what was interrupted, whether the machine restarted since, and what each step's undoing is: to
the operator, to the log, and to whoever looks at a node whose agent is dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sharing.node import record
from sharing.node.step import Step

KIND: Final = "journal"
BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")
"""A new value at each boot. Source: Linux, random(4)."""


def boot_id() -> str:
    """What tells this boot of the machine from any other."""
    return BOOT_ID_FILE.read_text(encoding="ascii").strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """What a journal says that its agent did not finish."""

    steps: tuple[str, ...]
    at: int
    """The step that was begun and not reported done."""
    rebooted: bool
    """Whether the machine restarted since, so that instances and daemons are gone."""


@dataclass(slots=True)
class Journal:
    """The journal of one node; a plan is begun, its steps are begun one by one, it is finished."""

    path: Path
    boot: str = field(default_factory=boot_id)
    _steps: tuple[dict[str, str], ...] = ()

    def recover(self) -> Interrupted | None:
        """What the last agent did not finish; None if nothing. An unreadable file is set aside."""
        content = record.recover(self.path, KIND)
        if not content:
            return None
        steps = content.get("steps")
        listed = steps if isinstance(steps, list) else []
        at = content.get("at")
        return Interrupted(
            steps=tuple(str(one.get("do", "")) for one in listed if isinstance(one, dict)),
            at=at if isinstance(at, int) else 0,
            rebooted=content.get("boot") != self.boot,
        )

    def begin(self, steps: Sequence[Step]) -> None:
        """Take note of a plan's steps; nothing is done yet and nothing is written."""
        self._steps = tuple(_described(step) for step in steps)

    def starting(self, number: int) -> None:
        """A step is about to be done; on disk when this returns.

        Raises:
            UnavailableError: The disk refuses, so the step must not be done.
        """
        content: dict[str, Any] = {"boot": self.boot, "steps": list(self._steps), "at": number}
        record.write(self.path, KIND, content)

    def finish(self) -> None:
        """All steps are done or given up."""
        record.remove(self.path)


def _described(step: Step) -> dict[str, str]:
    return {"gpu": step.gpu, "do": str(step), "undo": str(step.inverse())}
