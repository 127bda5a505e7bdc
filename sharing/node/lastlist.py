"""What the kubelet was told last, on disk, so that the next agent can tell it again at once.

A kubelet counts nothing of ours while no agent serves, and a pod that it meets then fails for good
(kubernetes#125579). To look at the driver, the API server and the kubelet first takes seconds; the
last list is right in nearly all cases and is corrected by the first turn in the others.

What must never happen is that a share comes back which was withdrawn for something else. So a
withdrawal is on disk before the kubelet hears of it, and an addition only after that. A MIG share
is told again within the same boot only: the next one begins without instances.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from sharing.errors import UnavailableError
from sharing.mode import Mode
from sharing.node import record
from sharing.node.held import is_whole
from sharing.plugin.binding import MpsBinding, ShareBinding

KIND: Final = "offered"
_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a kubelet was told: what it may hand out, and what only its holders keep."""

    listed: tuple[ShareBinding, ...] = ()
    held: tuple[ShareBinding, ...] = ()

    def without(self, later: Told) -> Told:
        """What is listed now and stays listed: all that may be told while the change is under way.

        What stops being listed may still be in pods' hands, so it is answered for.
        """
        wanted = {(one.resource, one.device_id) for one in later.listed}
        stays = tuple(one for one in self.listed if (one.resource, one.device_id) in wanted)
        known = {one.device_id: one for one in (*self.held, *self.listed, *later.held)}
        listed = {one.device_id for one in stays}
        return Told(
            listed=stays, held=tuple(known[one] for one in sorted(known) if one not in listed)
        )

    def cautious(self, *, rebooted: bool) -> Told:
        """What of it a new agent may tell before it has looked: what was ill is so still.

        Args:
            rebooted: Whether the machine started anew since.
        """
        listed = (one for one in self.listed if not rebooted or is_whole(one.device_id))
        held = (one for one in self.held if not rebooted or is_whole(one.device_id))
        return Told(listed=tuple(map(_as_of_now, listed)), held=tuple(held))

    def unusable(self) -> Told:
        """The same with nothing to be handed out; capacity stays and holders are answered."""
        listed = (dataclasses.replace(one, healthy=False) for one in self.listed)
        return Told(listed=tuple(listed), held=self.held)


def _as_of_now(binding: ShareBinding) -> ShareBinding:
    """An MPS share waits for its daemon, whose limits have to be read back."""
    return binding if binding.mps is None else dataclasses.replace(binding, healthy=False)


class LastList:
    """The file of one node.

    Args:
        path: Its place; its folder must exist.
        boot: What tells this boot of the machine from any other.
    """

    def __init__(self, path: Path, boot: str) -> None:
        self._path = path
        self._boot = boot

    def keep(self, told: Told) -> None:
        """Have it on disk; where the disk refuses, nothing: better no list than an old one."""
        content = {
            "boot": self._boot,
            "listed": [dataclasses.asdict(one) for one in told.listed],
            "held": [dataclasses.asdict(one) for one in told.held],
        }
        try:
            record.write(self._path, KIND, content)
        except UnavailableError as error:
            _log.warning("last list was not kept", error=str(error))
            record.remove(self._path)

    def forget(self) -> None:
        """Have nothing on disk: what the kubelet knows is not known."""
        record.remove(self._path)

    def recall(self) -> Told:
        """What may be told before anything was looked at; nothing if nothing is known."""
        content = record.recover(self._path, KIND)
        if content is None:
            return Told()
        try:
            told = Told(listed=_bindings(content["listed"]), held=_bindings(content["held"]))
            rebooted = content["boot"] != self._boot
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            # Its checksum is right, so another version of this program wrote it.
            _log.warning("last list was not understood", path=str(self._path), error=str(error))
            return Told()
        return told.cautious(rebooted=rebooted)


def _bindings(items: Sequence[Mapping[str, Any]]) -> tuple[ShareBinding, ...]:
    return tuple(_binding(item) for item in items)


def _binding(item: Mapping[str, Any]) -> ShareBinding:
    mps = item["mps"]
    return ShareBinding(
        **{
            **item,
            "mode": Mode(item["mode"]),
            "device_nodes": tuple(item["device_nodes"]),
            "mps": None if mps is None else MpsBinding(**mps),
        }
    )
