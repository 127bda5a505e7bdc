"""What a sign of illness means: a table, from XIDs and the driver's other signs to reactions.

The table is data (``xids.toml``), after NVIDIA's XID catalogue; operators replace single lines by
a file of their own (``xidfile``). Nothing here knows a GPU.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib import resources
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator

from sharing.api.model import ApiModel, parse_model
from sharing.errors import InputError
from sharing.nvml.codes import RecoveryAction


class Reaction(StrEnum):
    """What a sign does to the device."""

    IGNORE = "ignore"
    """Nothing: an application's mistake, or none."""
    SUSPECT = "suspect"
    """It is told of; the device takes work."""
    COUNT = "count"
    """As suspect, until there are too many of them."""
    ACT = "act"
    """No new work until the device was quiet and passed its probes."""


class Action(StrEnum):
    """What to do about a device, mildest first, as NVIDIA's XID catalogue spells it."""

    NONE = ""
    IGNORE = "IGNORE"
    RESTART_APP = "RESTART_APP"
    XID_154 = "XID_154"
    """Whatever the driver's recovery action says."""
    CHECK_UVM = "CHECK_UVM"
    UPDATE_SWFW = "UPDATE_SWFW"
    DRAIN_P2P = "DRAIN_P2P"
    WORKFLOW_NVLINK_ERR = "WORKFLOW_NVLINK_ERR"
    WORKFLOW_NVLINK5_ERR = "WORKFLOW_NVLINK5_ERR"
    WORKFLOW_XID_48 = "WORKFLOW_XID_48"
    RESET_GPU = "RESET_GPU"
    DRAIN_AND_RESET = "DRAIN_AND_RESET"
    RESTART_VM = "RESTART_VM"
    RESTART_BM = "RESTART_BM"
    CHECK_MECHANICALS = "CHECK_MECHANICALS"
    CONTACT_SUPPORT = "CONTACT_SUPPORT"

    @property
    def rank(self) -> int:
        """How much it takes: a later sign that takes more is the one that is told."""
        return list(Action).index(self)


ADVICE: Final[Mapping[Action, str]] = {
    Action.RESTART_APP: "start the application again",
    Action.XID_154: "follow the driver's recovery action",
    Action.CHECK_UVM: "follow the unified memory workflow of NVIDIA's XID catalogue",
    Action.UPDATE_SWFW: "check the driver, then update it and the firmware",
    Action.DRAIN_P2P: "end what uses peer-to-peer memory of this GPU",
    Action.WORKFLOW_NVLINK_ERR: "reset the GPU; have its NVLink checked if it comes again",
    Action.WORKFLOW_NVLINK5_ERR: "decode the message by NVIDIA's XID catalogue, 144 to 150",
    Action.WORKFLOW_XID_48: "reset the GPU; replace it if it comes again",
    Action.RESET_GPU: "reset the GPU while nothing uses it",
    Action.DRAIN_AND_RESET: "end what uses the GPU and reset it",
    Action.RESTART_VM: "restart the virtual machine",
    Action.RESTART_BM: "restart the node",
    Action.CHECK_MECHANICALS: "check power, cooling and seating of the GPU",
    Action.CONTACT_SUPPORT: "replace the GPU or contact its vendor",
}
"""What the actions mean for a person."""

RECOVERY: Final[Mapping[RecoveryAction, Action]] = {
    RecoveryAction.NONE: Action.NONE,
    RecoveryAction.GPU_RESET: Action.RESET_GPU,
    RecoveryAction.NODE_REBOOT: Action.RESTART_BM,
    RecoveryAction.DRAIN_P2P: Action.DRAIN_P2P,
    RecoveryAction.DRAIN_AND_RESET: Action.DRAIN_AND_RESET,
}
"""The driver's own recommendation in the catalogue's words."""


class Sign(StrEnum):
    """Signs without a number; the words are reasons in status and events."""

    GPU_LOST = "GpuLost"
    GPU_UNREADABLE = "GpuUnreadable"
    GPU_UNAVAILABLE = "GpuUnavailable"
    DRIVER_UNAVAILABLE = "DriverUnavailable"
    RECOVERY_ACTION = "RecoveryAction"
    ROW_REMAP_FAILURE = "RowRemapFailure"
    ROW_REMAP_PENDING = "RowRemapPending"
    ECC_UNCORRECTED = "EccUncorrected"
    NVLINK_DOWN = "NvLinkDown"
    NVLINK_ERRORS = "NvLinkErrors"
    OVERHEATED = "Overheated"


class Rule(ApiModel):
    """A line of the table."""

    name: Annotated[str, Field(max_length=120)] = ""
    reaction: Reaction
    action: Action = Action.NONE
    limit: Annotated[int, Field(ge=0, le=1000)] = 0
    """How many within the window are too many; for ``count`` only."""
    window_s: Annotated[float, Field(alias="window_s", gt=0, le=30 * 86400)] = 3600.0
    """How long a sign is remembered, seconds."""
    gpu: bool = False
    """Whether the whole GPU is concerned, even where one MIG instance is named."""
    application: bool = False
    """Whether a program's mistake is the cause."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.reaction is Reaction.COUNT) != (self.limit > 0):
            raise InputError(
                "limit",
                f"{self.limit} with reaction {self.reaction}",
                expected="a limit of 1 or more with reaction count, and none with any other",
                example='{ reaction = "count", limit = 3, window_s = 3600.0 }',
            )
        return self


Positive = Annotated[float, Field(gt=0, le=365 * 86400)]


class Limits(ApiModel):
    """Times and counts of the state machine; see ``xids.toml``."""

    quiet_s: Annotated[Positive, Field(alias="quiet_s")] = 30.0
    longest_quiet_s: Annotated[Positive, Field(alias="longest_quiet_s")] = 3600.0
    probes: Annotated[int, Field(ge=1, le=100)] = 2
    forget_after_s: Annotated[Positive, Field(alias="forget_after_s")] = 86400.0
    flap_limit: Annotated[int, Field(alias="flap_limit", ge=1, le=1000)] = 5
    flap_quiet_s: Annotated[Positive, Field(alias="flap_quiet_s")] = 86400.0
    cool_down_c: Annotated[int, Field(alias="cool_down_c", ge=0, le=50)] = 5


class _File(ApiModel):
    """A policy file, whole or in part."""

    health: dict[str, Any] = Field(default_factory=dict)
    other: Rule | None = None
    xids: dict[Annotated[int, Field(ge=1, le=999)], Rule] = Field(default_factory=dict)
    signs: dict[Sign, Rule] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTable:
    """What each sign means."""

    xids: Mapping[int, Rule]
    signs: Mapping[Sign, Rule]
    other: Rule
    """For XIDs that are not listed."""
    limits: Limits

    def of_xid(self, number: int) -> Rule:
        """The rule of an XID."""
        return self.xids.get(number, self.other)

    def with_file(self, raw: Mapping[str, Any], subject: str) -> FaultTable:
        """The same with the lines of a policy file in place of ours.

        Raises:
            InputError: A line of it is wrong.
        """
        read = parse_model(_File, raw, subject)
        own = self.limits.model_dump(by_alias=True) | read.health
        return FaultTable(
            xids={**self.xids, **read.xids},
            signs={**self.signs, **read.signs},
            other=read.other or self.other,
            limits=parse_model(Limits, own, f"{subject}, health"),
        )


@lru_cache(maxsize=1)
def shipped_table() -> FaultTable:
    """The table of this release."""
    text = (resources.files("sharing.node") / "xids.toml").read_text(encoding="utf-8")
    empty = FaultTable(xids={}, signs={}, other=Rule(reaction=Reaction.ACT), limits=Limits())
    return empty.with_file(tomllib.loads(text), "xids.toml")
