"""How this node's plugin answers and how patient it is: chosen once, at start."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from sharing.plugin.binding import EditSettings

KUBELET_SOCKET_DIR: Final = "/var/lib/kubelet/device-plugins"
"""Source: kubelet device plugin API v1beta1, ``DevicePluginPath``."""
CDI_DIR: Final = "/var/run/cdi"
"""For specs made at run time. Source: CDI specification 0.5, "CDI directories"."""


class Strategy(StrEnum):
    """How an Allocate answer names devices; NVIDIA's plugin uses the same words."""

    CDI_CRI = "cdi-cri"
    CDI_ANNOTATIONS = "cdi-annotations"
    VOLUME_MOUNTS = "volume-mounts"
    ENVVAR = "envvar"

    @property
    def uses_cdi(self) -> bool:
        """Whether the container runtime reads our CDI files."""
        return self in (Strategy.CDI_CRI, Strategy.CDI_ANNOTATIONS)


class Packing(StrEnum):
    """Which GPU the next share is advised from."""

    PACK = "pack"
    """The fullest GPU that still has one: whole GPUs stay free for others."""
    SPREAD = "spread"
    """The emptiest GPU: sharers disturb each other least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSettings:
    """What an Allocate answer is made of."""

    strategy: Strategy = Strategy.CDI_CRI
    edits: EditSettings = field(default_factory=EditSettings)
    packing: Packing = Packing.PACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Deadlines and pauses towards the kubelet, in seconds."""

    serve_check_s: float = 5.0
    """For our own call to a fresh server, before the kubelet hears of it."""
    register_s: float = 15.0
    """A kubelet dials back for up to 10 s inside Register."""
    stream_opens_s: float = 5.0
    """From Register's answer to the kubelet's ListAndWatch; after that we register again."""
    delivery_s: float = 2.0
    """For a new device list to leave on the streams that are open."""
    first_retry_s: float = 0.25
    longest_retry_s: float = 5.0
    poll_s: float = 0.2
    """Between two looks at the kubelet's socket; one ``stat`` each."""
