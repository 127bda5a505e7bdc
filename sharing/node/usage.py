"""What each share uses, and who uses a GPU without holding a share of it (pure).

The driver lists processes of a GPU; a share has no counter of its own. So a process is put down
to a share only where pod, MIG instance and container leave exactly one: what stays unclear is
said to be unknown, and a GPU's figure is never given out as a pod's.

A pod that has ended while a process of it lives on (stuck in the driver, say) still has the
memory and the engine of its share. The share is not for others until that process is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum

from sharing.node.cgroup import Place, known_place
from sharing.node.clientlists import Disputed
from sharing.node.held import gpu_of
from sharing.share import place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A process on one GPU."""

    pid: int
    gpu: str
    memory_mib: int | None
    """None where the driver does not tell."""
    sm_percent: int | None = None
    """Of the GPU's time; None where the hardware cannot tell, as under MIG."""
    device_id: str | None = None
    """Device id of its MIG instance, which is a share or is cut into some; None outside of MIG."""
    in_instance: bool = False
    """Whether it runs in a MIG instance, of a share or not."""
    is_mps_client: bool = False
    places: tuple[Place, ...] = ()
    """The pods that it lies in, from the outside in."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Seat:
    """A share in the hands of one container of one pod."""

    device_id: str
    pod_uid: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """Who is on the node, as kubelet and API server say it."""

    seats: tuple[Seat, ...]
    """Who holds what now."""
    living: AbstractSet[str] | None = None
    """Pods that are not finished, by uid; None if nobody can tell."""
    containers: Mapping[str, str] = field(default_factory=dict)
    """Names of containers by the runtime's id, where they are known."""
    former: Mapping[str, str] = field(default_factory=dict)
    """The pod that held each share last, by device id."""
    ambient: AbstractSet[str] = frozenset()
    """Pods that the node itself lies in, and the agent's own."""


class Standing(StrEnum):
    """What a process is to the GPU that it uses."""

    HOLDER = "holder"
    """Of a pod that holds a share of it."""
    LINGERING = "lingering"
    """Of a pod that has ended."""
    STRANGER = "stranger"
    """Of the node itself, or of a pod that holds no share of it: monitoring, display, privilege."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """A process with its standing."""

    task: Task
    standing: Standing
    pod_uid: str = ""
    devices: tuple[str, ...] = ()
    """The shares that it may use: one, or several that cannot be told apart, or none known."""
    cgroup: str = ""
    """Of its container, if it is in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareUse:
    """What the holder of one share uses on its GPU."""

    device_id: str
    pids: tuple[int, ...] = ()
    memory_mib: int | None = 0
    """None where it cannot be told."""
    sm_percent: int | None = None
    """Of the time of the GPU, or of the MIG instance that the share is."""
    mps_clients: int = 0
    cgroups: tuple[str, ...] = ()
    """Of the holder's container, as its processes show it."""

    @property
    def gpu_uuid(self) -> str:
        """The GPU that the share is on."""
        return gpu_of(self.device_id)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Lingering:
    """A process of a pod that has ended, and what it keeps from others."""

    place: str
    """Device id of the share; of its MIG instance, or the GPU's UUID, where it is not known."""
    pid: int
    pod_uid: str

    def __str__(self) -> str:
        return f"process {self.pid} of pod {self.pod_uid}, which has ended, still uses it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """A node's processes, put down to shares."""

    uses: Mapping[str, ShareUse] = field(default_factory=dict)
    """By device id; every share that is held on a GPU which answered."""
    lingering: tuple[Lingering, ...] = ()
    strangers: Mapping[str, int] = field(default_factory=dict)
    """How many processes use a GPU without a share of it, by GPU UUID."""
    disputed: tuple[Disputed, ...] = ()
    """MPS clients that only the driver or only the daemon knows."""

    @property
    def withheld(self) -> dict[str, str]:
        """Why shares, or the free ones of a whole GPU, are not handed out; by place."""
        return {one.place: str(one) for one in reversed(self.lingering)}


def account(
    tasks: Iterable[Task],
    register: Register,
    gpus: AbstractSet[str],
    *,
    busy: Mapping[str, int] | None = None,
) -> Accounts:
    """Put processes down to shares.

    Args:
        tasks: All processes of these GPUs.
        register: Who is on the node.
        gpus: The GPUs that answered, by UUID; of others nothing is said.
        busy: Per cent of time that MIG instances were busy, by the device id of their share.
    """
    found = [_attribute(task, register) for task in tasks]
    held = sorted({one.device_id for one in register.seats if gpu_of(one.device_id) in gpus})
    strangers: dict[str, int] = {}
    for one in found:
        if one.standing is Standing.STRANGER:
            strangers[one.task.gpu] = strangers.get(one.task.gpu, 0) + 1
    return Accounts(
        uses={device_id: _use(device_id, found, (busy or {}).get(device_id)) for device_id in held},
        lingering=tuple(sorted({one for each in found for one in _lingering(each)})),
        strangers=dict(sorted(strangers.items())),
    )


def _attribute(task: Task, register: Register) -> Attribution:
    places = tuple(one for one in task.places if one.pod_uid not in register.ambient)
    seated = {one.pod_uid for one in register.seats}
    living = seated | (register.living or frozenset())
    place = known_place(places, living | set(register.former.values()))
    if place is None:
        return _of_nobody_known(task, places, register)
    if place.pod_uid not in living:
        return _of_the_past(task, place.pod_uid, register)
    mine = [
        one
        for one in register.seats
        if one.pod_uid == place.pod_uid and gpu_of(one.device_id) == task.gpu
    ]
    devices = _of_container(mine, register.containers.get(place.container_id))
    devices = _inside(task, devices) if devices else ()
    standing = Standing.HOLDER if devices else Standing.STRANGER
    return Attribution(
        task=task,
        standing=standing,
        pod_uid=place.pod_uid,
        devices=devices,
        cgroup=place.path if place.container_id else "",
    )


def _of_nobody_known(task: Task, places: Sequence[Place], register: Register) -> Attribution:
    """A pod that nobody knows has ended, where those that have not are known."""
    if not places or register.living is None:
        return Attribution(task=task, standing=Standing.STRANGER)
    return Attribution(
        task=task,
        standing=Standing.LINGERING,
        pod_uid=places[0].pod_uid,
        devices=_inside(task, ()),
    )


def _of_the_past(task: Task, pod_uid: str, register: Register) -> Attribution:
    before = [
        device_id
        for device_id, uid in sorted(register.former.items())
        if uid == pod_uid and gpu_of(device_id) == task.gpu
    ]
    return Attribution(
        task=task, standing=Standing.LINGERING, pod_uid=pod_uid, devices=_inside(task, before)
    )


def _of_container(seats: Sequence[Seat], name: str | None) -> tuple[str, ...]:
    """The shares of a pod's container, or of the pod where it is not known which one."""
    of_it = {one.device_id for one in seats if one.container == name}
    return tuple(sorted(of_it or {one.device_id for one in seats}))


def _inside(task: Task, devices: Iterable[str]) -> tuple[str, ...]:
    """Those that agree with the MIG instance that the process runs in."""
    found = tuple(devices)
    if not task.in_instance:
        return found
    if task.device_id is None:
        return ()
    return tuple(one for one in found or (task.device_id,) if place_of(one) == task.device_id)


def _lingering(one: Attribution) -> Iterator[Lingering]:
    if one.standing is not Standing.LINGERING:
        return
    for place in one.devices or (one.task.gpu,):
        yield Lingering(place=place, pid=one.task.pid, pod_uid=one.pod_uid)


def _use(device_id: str, found: Sequence[Attribution], busy: int | None) -> ShareUse:
    holders = [one for one in found if one.standing is Standing.HOLDER]
    if any(len(one.devices) > 1 and device_id in one.devices for one in holders):
        return ShareUse(device_id=device_id, memory_mib=None)
    mine = [one.task for one in holders if one.devices == (device_id,)]
    once = _each_once(mine)
    return ShareUse(
        device_id=device_id,
        pids=tuple(one.pid for one in once),
        memory_mib=_sum(one.memory_mib for one in once),
        sm_percent=busy
        if busy is not None
        else (_sum(one.sm_percent for one in once) if once else None),
        mps_clients=len({one.pid for one in mine if one.is_mps_client}),
        cgroups=tuple(
            sorted({one.cgroup for one in holders if one.devices == (device_id,) and one.cgroup})
        ),
    )


def _each_once(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """A process that computes and draws is listed twice with the same memory."""
    by_pid: dict[int, Task] = {}
    for one in tasks:
        known = by_pid.get(one.pid)
        if known is None or (known.memory_mib or 0) < (one.memory_mib or 0):
            by_pid[one.pid] = one
    return tuple(by_pid[pid] for pid in sorted(by_pid))


def _sum(figures: Iterable[int | None]) -> int | None:
    """None as soon as one of them is not known."""
    total = 0
    for one in figures:
        if one is None:
            return None
        total += one
    return total
