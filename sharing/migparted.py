"""mig-parted's ``mig-configs`` file as input, so that clusters can move over.

    version: v1
    mig-configs:
      all-balanced:
      - device-filter: ["0x20B210DE"]
        devices: all
        mig-enabled: true
        mig-devices: {1g.10gb: 2, 2g.20gb: 1, 3g.40gb: 1}

As there, a later entry for the same GPU wins, a GPU that no entry names stays as it is, ``all``
passes over GPUs without MIG, and the names ``all-disabled``, ``all-enabled``, ``all-balanced``
and ``all-<MIG profile>`` mean something though the file lacks them. MIG disabled means an
exclusive GPU. Unlike there, idle instances that the layout wants too are kept.

Source: NVIDIA/mig-parted, api/spec/v1 and internal/config.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from sharing.api.model import ApiModel, parse_model
from sharing.board import Board
from sharing.errors import InputError, LayoutError, shown
from sharing.layout import EXCLUSIVE_LAYOUT, GpuIdentity, GpuLayout
from sharing.miglayout import place
from sharing.migprofile import MigProfile
from sharing.mode import Mode

KEY: Final = "mig-configs"
_FILTER: Final = re.compile(r"0x([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})(?::0x[0-9A-Fa-f]{8})?", re.ASCII)
_NVIDIA: Final = 0x10DE
_DISABLED: Final = "all-disabled"
_ENABLED: Final = "all-enabled"
_BALANCED: Final = "all-balanced"
_BALANCE: Final = {7: {1: 2, 2: 1, 3: 1}, 4: {1: 2, 2: 1}}
"""How many instances of how many slices, by the slices of a board."""


def _dashed(name: str) -> str:
    return name.replace("_", "-")


class MigConfigEntry(ApiModel):
    """One entry of a named configuration."""

    model_config = ApiModel.model_config | {"alias_generator": _dashed}

    devices: Literal["all"] | Annotated[tuple[int, ...], Field(min_length=1)]
    device_filter: str | tuple[str, ...] = ()
    mig_enabled: bool
    mig_devices: dict[str, Annotated[int, Field(ge=0, le=48)]] | None = None

    @field_validator("device_filter")
    @classmethod
    def _check_filter(cls, value: str | tuple[str, ...]) -> tuple[str, ...]:
        filters = (value,) if isinstance(value, str) else value
        for text in filters:
            if text and not _FILTER.fullmatch(text):
                raise InputError(
                    "device-filter",
                    f"{shown(text)} is no PCI device",
                    expected="0x<device><vendor>, four digits each",
                    example="0x20B210DE",
                )
        return tuple(text for text in filters if text)

    @model_validator(mode="after")
    def _check_devices(self) -> Self:
        if self.mig_enabled is (self.mig_devices is None):
            raise InputError(
                "mig-devices",
                "mig-devices is missing"
                if self.mig_enabled
                else "mig-devices has no meaning while mig-enabled is false",
                expected="it where mig-enabled is true, and only there",
                example="mig-devices: {1g.10gb: 7}",
            )
        self.layout()
        return self

    def layout(self) -> GpuLayout:
        """What the GPUs that it selects become.

        Raises:
            InputError: A MIG profile is malformed, or splits its instance.
        """
        if self.mig_devices is None:
            return EXCLUSIVE_LAYOUT
        sizes = [(MigProfile.parse(name), count) for name, count in self.mig_devices.items()]
        return GpuLayout(mode=Mode.MIG, sizes=tuple(one for one in sizes if one[1]))

    def selects(self, gpu: GpuIdentity, board: Board) -> bool:
        """Whether it is about a GPU."""
        if self.devices != "all" and gpu.index not in self.devices:
            return False
        ids = {_device(text) for text in self.device_filter}
        return not ids or bool(ids & set(board.pci_device_ids))


class _File(ApiModel):
    version: Literal["v1"]
    mig_configs: dict[str, Annotated[tuple[MigConfigEntry, ...], Field(min_length=1)]] = Field(
        alias=KEY
    )


@dataclass(frozen=True, slots=True)
class MigConfigs:
    """The named configurations of one file."""

    configs: Mapping[str, tuple[MigConfigEntry, ...]]

    def chosen(self, name: str | None) -> str:
        """The configuration that a person means; the only one if none is named.

        Raises:
            InputError: None is named and the file holds several, or none is called so.
        """
        if name is None and len(self.configs) == 1:
            return next(iter(self.configs))
        if name is not None and (name in self.configs or _is_built_in(name)):
            return name
        raise InputError(
            "MIG configuration",
            "none is named" if name is None else f"{shown(name)} is not in the file",
            expected=f"one of {', '.join(sorted(self.configs))}, or {_BALANCED}, {_DISABLED}",
            fix="name one",
            example=f"--mig-config {min(self.configs, default=_BALANCED)}",
        )

    def layouts(
        self, name: str, gpus: Sequence[tuple[GpuIdentity, Board]]
    ) -> tuple[tuple[GpuIdentity, GpuLayout], ...]:
        """What the GPUs of a node become; those that stay as they are are left out.

        Raises:
            InputError: There is no such configuration, or it names a GPU for MIG that has none.
        """
        entries = self.configs.get(self.chosen(name))
        found = []
        for gpu, board in sorted(gpus, key=lambda pair: (pair[0].index, pair[0].uuid)):
            layout = _built_in(name, board) if entries is None else _by_entries(entries, gpu, board)
            if layout is not None:
                found.append((gpu, layout))
        return tuple(found)


def read_mig_configs(value: object, where: str) -> MigConfigs:
    """The configurations of one document.

    Raises:
        InputError: It is no ``mig-configs`` file of version v1.
    """
    return MigConfigs(dict(parse_model(_File, value, where).mig_configs))


def is_mig_configs(value: object) -> bool:
    """Whether a document is meant as mig-parted's file."""
    return isinstance(value, Mapping) and KEY in value


def _by_entries(
    entries: Sequence[MigConfigEntry], gpu: GpuIdentity, board: Board
) -> GpuLayout | None:
    layout = None
    for entry in entries:
        if not entry.selects(gpu, board):
            continue
        if entry.mig_enabled and not board.mig_capable:
            if entry.devices == "all":
                continue
            raise LayoutError(
                f"GPU {gpu.index}",
                f"its board {board.name} has no MIG, and the configuration enables it",
                fix="leave it out of devices",
            )
        layout = entry.layout()
    return layout


def _is_built_in(name: str) -> bool:
    if name in (_DISABLED, _ENABLED, _BALANCED):
        return True
    try:
        _profile_of(name)
    except InputError:
        return False
    return name.startswith("all-")


def _profile_of(name: str) -> MigProfile:
    """``all-1g.10gb.me`` is ``1g.10gb+me``: no ``+`` may stand in a label."""
    return MigProfile.from_token(name.removeprefix("all-"))


def _built_in(name: str, board: Board) -> GpuLayout | None:
    if name == _DISABLED or not board.mig_capable:
        return EXCLUSIVE_LAYOUT if name == _DISABLED else None
    if name == _ENABLED:
        return GpuLayout(mode=Mode.MIG)
    if name == _BALANCED:
        return _balanced(board)
    profile = _profile_of(name)
    for offer in board.mig:
        if offer.profile == profile:
            return _fitting(board, [profile] * offer.max_instances)
    return None


def _balanced(board: Board) -> GpuLayout:
    """2x 1g, 1x 2g and, on boards of seven slices, 1x 3g; nothing but 1g on boards of two."""
    wanted = _BALANCE.get(board.mig_compute_slices, {1: board.mig_compute_slices})
    profiles: list[MigProfile] = []
    for slices, count in wanted.items():
        plain = [
            offer.profile
            for offer in board.mig
            if offer.profile.gpu_slices == slices and not offer.profile.attributes
        ]
        profiles += [min(plain, key=lambda profile: profile.memory_gb)] * count
    return _fitting(board, profiles)


def _fitting(board: Board, profiles: Sequence[MigProfile]) -> GpuLayout:
    place(board, profiles)
    counts: dict[Any, int] = {}
    for profile in profiles:
        counts[profile] = counts.get(profile, 0) + 1
    return GpuLayout(mode=Mode.MIG, sizes=tuple(counts.items()))


def _device(text: str) -> int:
    match = _FILTER.fullmatch(text)
    return int(match[1], 16) if match and int(match[2], 16) == _NVIDIA else -1
