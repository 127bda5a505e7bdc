"""The steps that take a GPU from one layout to another: what each does, breaks, and its undoing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sharing.board import Placement
from sharing.layout import GpuLayout
from sharing.miglayout import Placed
from sharing.migprofile import MigProfile
from sharing.node.target import Offered
from sharing.share import mig_device_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Offer some shares no longer, and wait until the kubelet says so too."""

    gpu: str
    shares: tuple[Offered, ...]

    @property
    def text(self) -> str:
        """What is done, without the GPU."""
        noun = "share" if len(self.shares) == 1 else "shares"
        return f"withdraw {len(self.shares)} {noun} ({_listed(self.shares)})"

    def __str__(self) -> str:
        return f"{self.text} on {self.gpu}"

    def inverse(self) -> Step | str:
        """What undoes it."""
        return "the shares are offered again as soon as the plan is given up"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopMps:
    """Take down an MPS daemon; a GPU gets its compute mode back."""

    gpu: str
    layout: GpuLayout
    """What the daemon serves now."""
    instance: Placed | None = None
    """The MIG instance whose daemon it is; None for the GPU's."""

    @property
    def place(self) -> str:
        """Whose daemon it is: a MIG instance by its device id, or the GPU's UUID."""
        return _place(self.gpu, self.instance)

    @property
    def text(self) -> str:
        """What is done, without the GPU."""
        return f"stop MPS{_where(self.instance)}"

    def __str__(self) -> str:
        return f"{self.text} on {self.gpu}"

    def inverse(self) -> Step | str:
        """What undoes it."""
        return StartMps(gpu=self.gpu, layout=self.layout, instance=self.instance)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMps:
    """Bring up an MPS daemon with the limits of a layout, or give it new limits."""

    gpu: str
    layout: GpuLayout
    """What is served by MPS: the whole layout, or what an instance is cut into."""
    before: GpuLayout | None = None
    """What the daemon serves now; None where none runs."""
    instance: Placed | None = None
    """The MIG instance whose daemon it is; None for the GPU's."""

    @property
    def place(self) -> str:
        """Whose daemon it is: a MIG instance by its device id, or the GPU's UUID."""
        return _place(self.gpu, self.instance)

    @property
    def text(self) -> str:
        """What is done, without the GPU."""
        verb = "change MPS limits" if self.before else "start MPS"
        return f"{verb} for {self.layout}{_where(self.instance)}"

    def __str__(self) -> str:
        return f"{self.text} on {self.gpu}"

    def inverse(self) -> Step | str:
        """What undoes it."""
        if self.before is not None:
            return StartMps(
                gpu=self.gpu, layout=self.before, before=self.layout, instance=self.instance
            )
        return StopMps(gpu=self.gpu, layout=self.layout, instance=self.instance)


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyInstance:
    """Destroy a GPU instance that no pod and no process uses."""

    gpu: str
    profile: MigProfile
    placement: Placement
    gi_id: int

    @property
    def text(self) -> str:
        """What is done, without the GPU."""
        return f"destroy {self.profile} at {self.placement}"

    def __str__(self) -> str:
        return f"{self.text} on {self.gpu}"

    def inverse(self) -> Step | str:
        """What undoes it."""
        return CreateInstance(gpu=self.gpu, profile=self.profile, placement=self.placement)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMigMode:
    """Turn a GPU's MIG mode on or off; it has no instances and no users then."""

    gpu: str
    enabled: bool
    resets: bool = False
    """Whether the driver resets this one GPU for it, as before Hopper."""

    @property
    def text(self) -> str:
        """What is done, without the GPU."""
        mode = "on" if self.enabled else "off"
        return f"switch MIG mode {mode} by a reset" if self.resets else f"switch MIG mode {mode}"

    def __str__(self) -> str:
        return f"{self.text} on {self.gpu}"

    def inverse(self) -> Step | str:
        """What undoes it."""
        return SetMigMode(gpu=self.gpu, enabled=not self.enabled, resets=self.resets)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetGpu:
    """Reset one idle GPU, before Hopper, so that the MIG mode that waits comes into force."""

    gpu: str
    enabled: bool
    """The mode that waits."""

    @property
    def text(self) -> str:
        """What is done, without the GPU."""
        return f"bring MIG mode {'on' if self.enabled else 'off'} into force by a reset"

    def __str__(self) -> str:
        return f"{self.text} on {self.gpu}"

    def inverse(self) -> Step | str:
        """What undoes it."""
        return SetMigMode(gpu=self.gpu, enabled=not self.enabled, resets=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateInstance:
    """Create a GPU instance, filled by one compute instance, at an explicit place."""

    gpu: str
    profile: MigProfile
    placement: Placement

    @property
    def text(self) -> str:
        """What is done, without the GPU."""
        return f"create {self.profile} at {self.placement}"

    def __str__(self) -> str:
        return f"{self.text} on {self.gpu}"

    def inverse(self) -> Step | str:
        """What undoes it."""
        return "its number is known once it exists; a plan for the old layout destroys it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertise:
    """Offer the shares of a layout, as read back from the driver, to the kubelet."""

    gpu: str
    layout: GpuLayout

    @property
    def text(self) -> str:
        """What is done, without the GPU."""
        return f"offer {self.layout}"

    def __str__(self) -> str:
        return f"{self.text} on {self.gpu}"

    def inverse(self) -> Step | str:
        """What undoes it."""
        return "a plan for another layout withdraws the shares first"


Step: TypeAlias = (
    Withdraw
    | StopMps
    | StartMps
    | DestroyInstance
    | SetMigMode
    | ResetGpu
    | CreateInstance
    | Advertise
)


def interrupts(step: Step) -> str:
    """Whom a step disturbs, in words; it is only done once nobody uses what it takes away."""
    match step:
        case Withdraw():
            return "new pods cannot have these shares; those that hold one keep it"
        case StopMps():
            return "nobody: no client is left"
        case StartMps(before=None, instance=None):
            return "nobody: the GPU is idle"
        case StartMps(before=None):
            return "nobody: the instance is idle; the GPU's other instances run on"
        case StartMps():
            return "nobody: running clients keep their limits"
        case DestroyInstance():
            return "nobody: the instance is idle; the GPU's other instances run on"
        case SetMigMode(resets=True) | ResetGpu():
            return "clients of this GPU, monitoring too, lose it for seconds; other GPUs run on"
        case SetMigMode():
            return "NVLink to this GPU is re-made; other GPUs run on"
        case CreateInstance() | Advertise():
            return "nobody"


def _place(gpu: str, instance: Placed | None) -> str:
    if instance is None:
        return gpu
    return mig_device_id(gpu, instance.profile, instance.placement.start)


def _where(instance: Placed | None) -> str:
    return "" if instance is None else f" in {instance.profile} at {instance.placement}"


def _listed(shares: tuple[Offered, ...]) -> str:
    counts: dict[str, int] = {}
    for share in shares:
        counts[share.resource] = counts.get(share.resource, 0) + 1
    return ", ".join(f"{count} {resource}" for resource, count in sorted(counts.items()))
