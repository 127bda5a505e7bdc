"""The life of a node by chance: layouts, pods, faults, foreign hands, deaths, all of it real.

Agent, kubelet, API server and controller run as they are; the GPUs are simulated. After each step
no pod may have lost its MIG instance by us, and no device may have two holders. In the end, with
everybody gone, the wanted layout has to be offered.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sharing.api.layout import LayoutEntrySpec
from sharing.errors import GpuSharingError
from sharing.migprofile import MigProfile
from sharing.node.health import HealthPolicy
from sharing.node.retreat import RetreatPolicy
from sharing.nvml.codes import Code, RecoveryAction
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Failure, Gpu, Machine
from sharing.share import instance_named
from tests.support.agent_bench import NodeBench

Entry = dict[str, Any]
_PARTS: Final[list[Entry]] = [
    {"mode": "exclusive"},
    {"mode": "time-slicing", "sizes": {"1of4": 4}},
    {"mode": "mps", "sizes": {"1of2": 1, "1of4": 2}},
    {"mode": "mps", "sizes": {"1of2": 2}},
]
_MIG: Final[dict[str, list[dict[str, int]]]] = {
    "H100-80GB": [
        {"1g.10gb": 7},
        {"3g.40gb": 1, "1g.10gb": 3},
        {"2g.20gb": 2, "1g.10gb": 2},
        {"4g.40gb": 1, "3g.40gb": 1},
    ],
    "A100-40GB": [{"1g.5gb": 7}, {"3g.20gb": 2}, {"2g.10gb": 1, "1g.5gb": 2}],
}
_SMALLEST: Final = {"H100-80GB": "1g.10gb", "A100-40GB": "1g.5gb"}
_CUTS: Final[dict[str, list[Entry]]] = {
    "H100-80GB": [
        {"sizes": {"3g.40gb": 1, "1g.10gb": 3}, "cut": {"3g.40gb": _PARTS[2]}},
        {
            "sizes": {"2g.20gb": 2, "1g.10gb": 2},
            "cut": {"1g.10gb": _PARTS[1], "2g.20gb": _PARTS[3]},
        },
    ],
    "A100-40GB": [{"sizes": {"3g.20gb": 2}, "cut": {"3g.20gb": _PARTS[3]}}],
}
_XIDS: Final = (13, 31, 48, 79, 94, 95, 119)
_CALLS: Final = (
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceDestroy",
    "nvmlComputeInstanceDestroy",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlDeviceSetMigMode",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGpuInstances",
)
_HEALING: Final = HealthPolicy(quiet_s=0.3, longest_quiet_s=0.6, flap_limit=1000)
_STUBBORN: Final = RetreatPolicy(failures=1000)
_PAUSES_S: Final = (0.0, 0.0, 0.05, 0.3)


@dataclass(slots=True)
class _Held:
    """What a pod got."""

    device: str
    serial: int | None
    """Of its MIG instance; None for none, and once something else than us may have taken it."""

    @property
    def gpu(self) -> str:
        return self.device.partition("::")[0]

    @property
    def start(self) -> int:
        named = instance_named(self.device)
        assert named is not None
        return named[1]


@dataclass
class NodeLife:
    """One node, one course of events; ``told`` says what happened, for whoever reads a failure."""

    node: NodeBench
    draw: random.Random
    told: list[str] = field(default_factory=list)
    _boards: dict[str, str] = field(default_factory=dict)
    _entries: list[Entry] = field(default_factory=list)
    _pods: dict[str, _Held] = field(default_factory=dict)
    _made: int = 0

    async def live(self, steps: int) -> None:
        """Go through some steps, and see in the end that all is well."""
        self._boards = {gpu.uuid: gpu.board for gpu in self.node.machine().gpus}
        await self.node.start_controller()
        await self.another_layout()
        await self._start()
        for _ in range(steps):
            (step,) = self.draw.choices(list(_STEPS), list(_STEPS.values()))
            await step(self)
            await asyncio.sleep(self.draw.choice(_PAUSES_S))
            self._check()
        await self._settle()

    # -- what tenants and the platform team do

    async def another_layout(self) -> None:
        self._entries = [
            {"gpus": f"uuid:{uuid}", **self.draw.choice(layouts_of(board))}
            for uuid, board in self._boards.items()
        ]
        self._tell(f"wants {self._entries}")
        await self.node.layout(*self._entries)

    async def pod_comes(self) -> None:
        offered = list(self.node.allocatable())
        if not offered:
            return
        self._made += 1
        name, resource = f"p{self._made}", self.draw.choice(offered)
        pod = await self.node.run_pod(name, resource)
        held = self.node.kubelet.ledger.of(str(pod["metadata"]["uid"]), "main")
        if pod["status"]["phase"] != "Running" or not held:
            self._tell(f"pod {name} was refused: {pod['status'].get('message')}")
            await self.node.delete_pod(name)
            return
        (device,) = (one for holding in held.values() for one in holding.devices)
        got = _Held(device=device, serial=None)
        if instance_named(device) is not None:
            got.serial = self._serial(got)
        self._pods[name] = got
        self._tell(f"pod {name} holds {device} of {resource}")

    async def pod_goes(self) -> None:
        if self._pods:
            name = self.draw.choice(sorted(self._pods))
            self._tell(f"pod {name} goes")
            await self.node.delete_pod(name)
            del self._pods[name]

    # -- what befalls programs

    async def agent_dies(self) -> None:
        self._tell("the agent dies")
        await self._start()

    async def kubelet_restarts(self) -> None:
        self._tell("the kubelet restarts")
        await self.node.kubelet.restart()

    async def mps_dies(self) -> None:
        for file in (self.node.folder / "m").glob("*/pipe/nvidia-cuda-mps-control.pid"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)
                self._tell(f"the daemon of {file.parent.parent.name} dies")

    # -- what befalls GPUs

    async def reboot(self) -> None:
        self._tell("reboot")
        self._excuse()
        await self.node.stop("agent")
        order = list(range(len(self._boards)))
        self.draw.shuffle(order)
        self.node.store().change(lambda machine: operate.reboot(machine, order))
        await self._start()

    async def gpu_is_lost(self) -> None:
        uuid = self._any_gpu()
        self._excuse(uuid)
        self._do(f"{uuid} is lost", lambda machine: operate.lose(machine, uuid))

    async def gpu_is_reset(self) -> None:
        uuid = self._any_gpu()
        if self._reset(uuid):
            self._excuse(uuid)

    async def xid(self) -> None:
        uuid, number = self._any_gpu(), self.draw.choice(_XIDS)
        self._do(
            f"XID {number} of {uuid}",
            lambda machine: operate.report_xid(machine, uuid, number, recovery=RecoveryAction.NONE),
        )

    async def driver_refuses(self) -> None:
        failure = Failure(
            function=self.draw.choice(_CALLS),
            code=Code.UNKNOWN,
            times=self.draw.choice((1, 2, 5)),
            takes_effect=self.draw.random() < 0.3,
        )
        self._do(f"{failure} is due", lambda machine: operate.fail_calls(machine, failure))

    # -- what others do

    async def somebody_makes_an_instance(self) -> None:
        uuid, whole = self._any_gpu(), self.draw.random() < 0.7
        profile = MigProfile.parse(_SMALLEST[self._boards[uuid]])
        self._do(
            f"somebody makes {profile} on {uuid}",
            lambda machine: operate.create_instance(machine, uuid, profile, with_compute=whole),
        )

    async def somebody_destroys_an_instance(self) -> None:
        uuid = self._any_gpu()
        instances = self._gpu(uuid).instances
        if instances:
            chosen = self.draw.choice(instances)
            self._excuse(uuid, chosen.serial)
            self._do(
                f"somebody destroys what starts at {chosen.start} on {uuid}",
                lambda machine: operate.destroy_instance(machine, uuid, chosen.id),
            )

    async def process_starts(self) -> None:
        uuid = self._any_gpu()
        instances = self._gpu(uuid).instances
        inside = self.draw.choice(instances).id if instances else None
        self._do(
            f"a process starts in {inside} of {uuid}",
            lambda machine: operate.start_process(machine, uuid, gi_id=inside),
        )

    async def processes_end(self) -> None:
        self._end_processes(0.6)

    # -- the end

    async def _settle(self) -> None:
        self._tell("all go")
        self.node.store().change(lambda machine: (replace(machine, failures=()), None))
        self._end_processes(1.0)
        for name in sorted(self._pods):
            await self.node.delete_pod(name)
        self._pods.clear()
        for gpu in self.node.machine().gpus:
            if gpu.lost:
                self._reset(gpu.uuid)
        wanted: dict[str, int] = {}
        for entry in self._entries:
            for resource, count in offer_of(entry).items():
                wanted[resource] = wanted.get(resource, 0) + count
        await self.node.until_allocatable(wanted)
        await self.node.until_served()

    def _check(self) -> None:
        devices = [held.device for held in self._pods.values()]
        assert len(devices) == len(set(devices)), "one device has two holders"
        for name, held in self._pods.items():
            assert held.serial is None or self._serial(held) == held.serial, f"{name} lost {held}"

    # -- hands

    async def _start(self) -> None:
        if "agent" in self.node.tasks:
            await self.node.stop("agent")
        await self.node.start_agent(until_ready=False, retreat=_STUBBORN, health=_HEALING)

    def _do(self, what: str, step: Callable[[Machine], tuple[Machine, object]]) -> bool:
        """Change the machine, if it can be; whether it was."""
        try:
            self.node.store().change(step)
        except GpuSharingError:
            return False
        self._tell(what)
        return True

    def _end_processes(self, share: float) -> None:
        for gpu in self.node.machine().gpus:
            for process in gpu.processes:
                if self.draw.random() < share:
                    self._end(process.pid)

    def _end(self, pid: int) -> None:
        self._do(f"process {pid} ends", lambda machine: operate.stop_process(machine, pid))

    def _reset(self, uuid: str) -> bool:
        return self._do(f"{uuid} is reset", lambda machine: operate.reset(machine, uuid))

    def _excuse(self, uuid: str = "", serial: int | None = None) -> None:
        """Others than us may have taken instances: all, those of a GPU, or one of them."""
        for held in self._pods.values():
            if uuid in ("", held.gpu) and serial in (None, held.serial):
                held.serial = None

    def _serial(self, held: _Held) -> int | None:
        at = {one.start: one.serial for one in self._gpu(held.gpu).instances}
        return at.get(held.start)

    def _gpu(self, uuid: str) -> Gpu:
        return operate.find(self.node.machine(), uuid)

    def _any_gpu(self) -> str:
        return self.draw.choice(sorted(self._boards))

    def _tell(self, what: str) -> None:
        self.told.append(what)


def layouts_of(board: str) -> list[Entry]:
    """Layouts of a board, as in a GPULayout."""
    plain: list[Entry] = [{"sizes": sizes} for sizes in _MIG[board]]
    return _PARTS + [{"mode": "mig", **one} for one in plain + _CUTS[board]]


def offer_of(entry: Entry) -> dict[str, int]:
    """What one GPU of a layout offers."""
    layout = LayoutEntrySpec.model_validate(entry).to_layout()
    return {share_class.resource_name: count for share_class, count in layout.shares}


_STEPS: Final[dict[Callable[[NodeLife], Awaitable[None]], int]] = {
    NodeLife.another_layout: 5,
    NodeLife.pod_comes: 8,
    NodeLife.pod_goes: 5,
    NodeLife.agent_dies: 2,
    NodeLife.kubelet_restarts: 1,
    NodeLife.mps_dies: 1,
    NodeLife.reboot: 1,
    NodeLife.gpu_is_lost: 1,
    NodeLife.gpu_is_reset: 1,
    NodeLife.xid: 2,
    NodeLife.driver_refuses: 2,
    NodeLife.somebody_makes_an_instance: 2,
    NodeLife.somebody_destroys_an_instance: 2,
    NodeLife.process_starts: 3,
    NodeLife.processes_end: 3,
}
"""What may happen, and how often."""
