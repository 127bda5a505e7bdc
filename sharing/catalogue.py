"""The catalogue: every board that we know, from the files in ``sharing/boards``.

At run time the driver is the truth about a GPU. The catalogue serves where there is no driver
(``admit``, ``plan``, the simulator), fills what a driver cannot say, and gives boards short names.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any, Final

from sharing.board import Architecture, Board, BoardMigProfile, Confidence, Placement, Source
from sharing.errors import InputError, shown
from sharing.migprofile import MigProfile

MOST_GPUS: Final = 64
"""No node has more; a larger count is a slip of the finger."""

_COUNTED: Final = re.compile(r"(?:([1-9][0-9]{0,3})x)?(\S(?:.*\S)?)", re.ASCII)
_NOT_A_NAME: Final = re.compile(r"[^a-z0-9]+", re.ASCII)


@dataclass(frozen=True)
class Catalogue:
    """All known boards, by name."""

    boards: tuple[Board, ...]

    def board(self, name: object) -> Board:
        """The board that a person means, by our name or by NVML's product name.

        Upper and lower case, blanks and dashes do not matter, nor does a leading "NVIDIA".

        Raises:
            InputError: No board is called so.
        """
        found = self._by_key.get(_key(name)) if isinstance(name, str) else None
        if found is not None:
            return found
        names = [board.name for board in self.boards]
        near = difflib.get_close_matches(_key(str(name)), self._by_key, n=1, cutoff=0.0)
        raise InputError(
            "GPU board",
            f"{shown(name)} is not in the catalogue",
            expected=f"one of {', '.join(names)}, or a product name as NVML reports it",
            fix="correct the name",
            example=self._by_key[near[0]].name if near else names[0],
        )

    def of_product(self, product: str, *, memory_mib: int = 0) -> Board | None:
        """The board that NVML's product name means, or None for a board that we do not know.

        Args:
            product: NVML's device name.
            memory_mib: The GPU's total memory, if known; a board whose memory differs by more
                than an eighth is another one that carries the same product name.
        """
        found = self._by_key.get(_key(product))
        if found and memory_mib and abs(found.memory_mib - memory_mib) * 8 > found.memory_mib:
            return None
        return found

    @cached_property
    def _by_key(self) -> Mapping[str, Board]:
        return {
            _key(name): board
            for board in self.boards
            for name in (*board.product_names, board.name)
        }


@lru_cache(maxsize=1)
def load() -> Catalogue:
    """The catalogue of this release, read once."""
    folder = resources.files("sharing") / "boards"
    files = [entry for entry in folder.iterdir() if entry.name.endswith(".toml")]
    boards = [_board(tomllib.loads(entry.read_text(encoding="utf-8"))) for entry in files]
    return Catalogue(tuple(sorted(boards, key=lambda board: board.name)))


def parse_node_gpus(text: object) -> tuple[Board, ...]:
    """The GPUs of a node as people write them: ``8xH100-80GB``, ``A30-24GB``, or a list of such.

    Raises:
        InputError: It names no GPUs, too many, or a board that is not in the catalogue.
    """
    items = text if isinstance(text, list | tuple) else [text]
    boards = [board for item in items for board in _counted(item)]
    if not boards or len(boards) > MOST_GPUS:
        raise InputError(
            "GPUs of a node",
            f"{shown(text)} are {len(boards)} GPUs",
            expected=f"1 to {MOST_GPUS}",
            example="8xH100-80GB",
        )
    return tuple(boards)


def _counted(item: object) -> Iterable[Board]:
    match = _COUNTED.fullmatch(item.strip()) if isinstance(item, str) else None
    if match is None:
        raise InputError(
            "GPUs of a node",
            f"{shown(item)} names no board",
            expected="a board, a count and a board, or a list of them",
            example="8xH100-80GB, or [H100-80GB, A100-40GB]",
        )
    count = int(match[1] or 1)
    board = load().board(match[2])
    return [board] * min(count, MOST_GPUS + 1)


def _key(name: str) -> str:
    key = _NOT_A_NAME.sub("-", name.casefold()).strip("-")
    return key.removeprefix("nvidia-")


def _board(data: Mapping[str, Any]) -> Board:
    mig = data.get("mig", {})
    profiles = [_profile(name, facts) for name, facts in mig.get("profiles", {}).items()]
    major, minor = data["compute_capability"]
    return Board(
        name=data["name"],
        product_names=tuple(data["product_names"]),
        architecture=Architecture(data["architecture"]),
        compute_capability=(major, minor),
        memory_mib=data["memory_mib"],
        sms=data["sms"],
        pci_device_ids=tuple(data["pci_device_ids"]),
        earliest_driver=data["earliest_driver"],
        mig=tuple(sorted(profiles, key=lambda profile: profile.profile)),
        mig_slots=mig.get("slots", 0),
        mig_compute_slices=mig.get("compute_slices", 0),
        resetless=mig.get("resetless", False),
        sources=tuple(
            (fact, Source(Confidence(confidence), origin))
            for fact, (confidence, origin) in data["sources"].items()
        ),
    )


def _profile(name: str, facts: Mapping[str, Any]) -> BoardMigProfile:
    rest = {key: value for key, value in facts.items() if key not in {"starts", "length"}}
    placements = tuple(Placement(start, facts["length"]) for start in sorted(facts["starts"]))
    return BoardMigProfile(profile=MigProfile.parse(name), placements=placements, **rest)
