"""The restart matrix: which program starts again, around what, and in which order with others.

A cell is one program of a node, one act between kubelet and agent, and a moment of it: the program
starts again before the act, in its middle or after it. Two more programs start again right beside
it, and the order says which place among the three is the program's own. One source for the
embedded cluster and for a real node.

Project-HAMi/HAMi#812, openshift/instaslice-operator#336, kubernetes#128043, #114422: pods ended or
counts were wrong depending on who started first.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any, Final

from sharing.cluster.errors import ForbiddenError
from sharing.cluster.kind import GPU_LAYOUTS, GPU_NODES, PODS
from sharing.errors import UnavailableError
from sharing.mode import Mode
from sharing.nvml.codes import Code
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Failure, Machine
from tests.cluster.waiting import eventually
from tests.support import books
from tests.support.forms import IMAGE, LAYOUT, QUARTER
from tests.support.trials import PodKey, Trial

FIGURES: Final = "GPU_SHARING_FIGURES"
"""Names a file that gets one JSON line a cell: how long until counts and books were right."""
KUBELETS_OWN: Final = {"UnexpectedAdmissionError"}
"""A new pod that meets a kubelet before the plugins do fails there (kubernetes#125579)."""
_EIGHTH: Final = "gpu.sharing/timeslice-1of8"
_GPU: Final = QUARTER[Mode.EXCLUSIVE]
_APPLICATION_XID: Final = 43
"""An application's own fault: the agent looks at the driver, and nothing is ill."""
_SETTLE_S: Final = 40.0
_PERIOD_S: Final = 0.1


class Program(StrEnum):
    """What starts again."""

    AGENT = "agent"
    KUBELET = "kubelet"
    RUNTIME = "runtime"
    MPS = "mps"
    """Every MPS daemon of the node."""
    DRIVER = "driver"
    """The simulated driver, which is gone for two looks."""


class Moment(StrEnum):
    """When it does, seen from the act."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


class Act(StrEnum):
    """What happens between kubelet and agent meanwhile."""

    REGISTER = "register"
    LIST = "list"
    """A new device list: a GPU is cordoned, or no longer."""
    ALLOCATE = "allocate"
    LAYOUT = "layout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One field of the matrix."""

    program: Program
    moment: Moment
    act: Act
    place: int
    """Of the program among the three that start again."""

    @property
    def programs(self) -> tuple[Program, ...]:
        """The three, in order."""
        others = [one for one in (Program.AGENT, Program.KUBELET, Program.MPS)
                  if one is not self.program][:2]  # fmt: skip
        return (*others[: self.place], self.program, *others[self.place :])

    def __str__(self) -> str:
        return f"{self.program} {self.moment} {self.act}: {' '.join(self.programs)}"


def cells(programs: tuple[Program, ...]) -> tuple[Cell, ...]:
    """The whole matrix of some programs."""
    return tuple(
        Cell(program=program, moment=moment, act=act, place=place)
        for program, moment, act, place in product(programs, Moment, Act, range(3))
    )


@dataclass(slots=True)
class Scene:
    """A node with pods that run all the time, and what changes on it."""

    trial: Trial
    restart_runtime: Callable[[], None] | None = None
    """None where nobody can do that."""
    residents: dict[PodKey, str] = field(default_factory=dict)
    """The pods that must outlive everything, with their uids."""
    held: Mapping[Any, Any] = field(default_factory=dict)
    before: Mapping[str, int] = field(default_factory=dict)
    """What the node offered when it began."""
    wanted: dict[str, int] = field(default_factory=dict)
    """What the node shall offer."""
    layout_gpu: int = -1
    """A GPU that nobody holds, whose layout changes back and forth."""
    cordoned_gpu: int = -1
    pods: int = 0
    starting: asyncio.Task[None] | None = None
    """An agent that has not said yet that it is ready."""

    async def settle(self) -> None:
        """Begin: one pod of each mode, and two idle GPUs to play with."""
        keys = [await self.create(mode) for mode in Mode]
        for key in keys:
            pod = await self.trial.reaches(key, "Running", "Failed")
            assert pod["status"]["phase"] == "Running", pod["status"]
            self.residents[key] = pod["metadata"]["uid"]
        self.held = await self.trial.held()
        busy = {id_ for one in self.held.values() for some in one.values() for id_ in some}
        whole = [
            n for n, gpu in enumerate(self.trial.machine.gpus) if n > 3 and gpu.uuid not in busy
        ]
        self.layout_gpu, self.cordoned_gpu = whole[:2]
        self.before = await self.trial.offered()
        self.wanted = dict(self.before)

    async def create(self, mode: Mode) -> PodKey:
        """A pod that wants a quarter, or a whole GPU."""
        self.pods += 1
        name = f"m{self.pods}"
        annotations = {"gpu.sharing/fraction": "1/4"}
        pod = {
            "metadata": {"name": name, "namespace": mode.value, "annotations": annotations},
            "spec": {"containers": [{"name": "main", "image": IMAGE}]},
        }

        async def admitted() -> bool:
            try:
                await self.trial.create(pod)
            except ForbiddenError:
                return False  # nothing is offered at this moment; controllers ask again
            return True

        await eventually(f"{name} is admitted", admitted, timeout_s=_SETTLE_S)
        return mode.value, name

    async def leave(self) -> None:
        """End: the layout, the cordon and the pods as they were before, and all books right."""
        await self.trial.delete(*self.residents)
        # Before the layout: it writes the spec as it was read, and must not meet the controller.
        await self._cordon(on=False)
        await self.trial.client.patch(GPU_LAYOUTS, "all", {"spec": {"gpus": list(LAYOUT)}})
        await self.trial.counts_agree(lambda offered: offered == self.before)

    # -- acts

    async def toggle_layout(self) -> None:
        """The idle GPU is cut into eighths, or made whole again."""
        entries = [dict(entry) for entry in LAYOUT]
        if _EIGHTH in self.wanted:
            self.wanted[_GPU] += 1
            del self.wanted[_EIGHTH]
        else:
            cut = {"gpus": f"{self.layout_gpu}", "mode": "time-slicing", "sizes": {"1of8": 8}}
            entries.insert(0, cut)
            self.wanted[_GPU] -= 1
            self.wanted[_EIGHTH] = 8
        await self.trial.client.patch(GPU_LAYOUTS, "all", {"spec": {"gpus": entries}})

    async def toggle_cordon(self) -> None:
        """The other idle GPU takes no work, or takes it again."""
        on = not await self._is_cordoned()
        self.wanted[_GPU] += -1 if on else 1
        await self._cordon(on=on)

    async def _is_cordoned(self) -> bool:
        spec = (await self.trial.client.get(GPU_NODES, self.trial.place.name))["spec"]
        return any(gpu.get("cordoned") for gpu in spec["gpus"])

    async def _cordon(self, *, on: bool) -> None:
        uuid = self.trial.machine.gpus[self.cordoned_gpu].uuid
        name = self.trial.place.name
        spec = (await self.trial.client.get(GPU_NODES, name))["spec"]
        gpus = [gpu | {"cordoned": on and gpu["uuid"] == uuid} for gpu in spec["gpus"]]
        await self.trial.client.patch(GPU_NODES, name, {"spec": {"gpus": gpus}})

    async def allocate(self) -> None:
        """A pod of each mode is created and ended; it runs, or the kubelet refused it."""
        keys = await asyncio.gather(*(self.create(mode) for mode in (Mode.MPS, Mode.MIG)))
        for key in keys:
            pod = await self.trial.reaches(key, "Running", "Failed")
            reason = pod["status"].get("reason")
            assert pod["status"]["phase"] == "Running" or reason in KUBELETS_OWN, pod["status"]
        await self.trial.delete(*keys)

    async def register(self) -> None:
        """The agent, which was ended, registers every class."""
        with suppress(UnavailableError):  # it was ended again while it did
            await self.trial.agent.start()

    # -- restarts

    async def restart(self, program: Program) -> float:
        """Have one program start again; the moment at which the new one was started."""
        match program:
            case Program.AGENT:
                await self._kill_agent()
                started = time.monotonic()
                await self.trial.agent.start()
                return started
            case Program.KUBELET:
                await self.trial.restart_kubelet(signal.SIGKILL)
            case Program.RUNTIME:
                assert self.restart_runtime is not None
                await asyncio.to_thread(self.restart_runtime)
            case Program.MPS:
                kill_daemons(self.trial.place.folder)
            case Program.DRIVER:
                self.trial.gpus(gone_for_two_looks)
        return time.monotonic()

    async def _kill_agent(self) -> None:
        if self.starting is None or self.starting.done():
            await self.trial.agent.stop(signal.SIGKILL)
            return
        assert self.trial.agent.pid is not None
        os.killpg(self.trial.agent.pid, signal.SIGKILL)
        await self.starting  # it sees that the agent ended at its start

    async def restart_all(self, cell: Cell) -> float:
        """The cell's three programs, one after the other."""
        started = 0.0
        for program in cell.programs:
            started = await self.restart(program)
        return started

    # -- the judgement

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[list[float]]:
        """Look at what the node allocates all the time; the moments at which it was not right."""
        wrong: list[float] = []

        async def look() -> None:
            while True:
                offered = await self.trial.offered()
                if any(offered.get(name, 0) != count for name, count in self.wanted.items()):
                    wrong.append(time.monotonic())
                await asyncio.sleep(_PERIOD_S)

        task = asyncio.create_task(look())
        try:
            yield wrong
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def right_again(self) -> None:
        """Everything that is wanted is offered, and all books agree.

        Raises:
            NeverHappenedError: Not in time.
        """
        seen: dict[str, Any] = {}

        async def right() -> bool:
            found = await self.trial.books()
            offered = {name: found.allocatable.get(name, 0) for name in self.wanted}
            seen.update(offered=offered, said=books.disagreements(found))
            return offered == self.wanted and not seen["said"]

        try:
            await eventually("the counts are right", right, timeout_s=_SETTLE_S)
        except AssertionError as error:
            error.add_note(f"wanted {self.wanted}, seen {seen}")
            raise

    async def nobody_is_lost(self) -> None:
        """The same pods run, and hold what they held."""
        for (namespace, name), uid in self.residents.items():
            pod = await self.trial.client.get(PODS, name, namespace=namespace)
            assert (pod["metadata"]["uid"], pod["status"]["phase"]) == (uid, "Running")
        assert await self.trial.held() == self.held


async def play(cell: Cell, scene: Scene) -> float:
    """One cell; seconds from the start of the last program until the node's counts stay right.

    Raises:
        AssertionError: Something was handed out twice, lost, or is not right again.
    """
    async with scene.trial.watched(), scene.counted() as wrong:
        if cell.act is Act.REGISTER:
            await scene.trial.agent.stop()
        if cell.moment is Moment.BEFORE:
            started = await scene.restart_all(cell)
            if cell.act is not Act.REGISTER or Program.AGENT not in cell.programs:
                await _ACTS[cell.act](scene)
        elif cell.moment is Moment.DURING:
            acting = asyncio.create_task(_ACTS[cell.act](scene))
            if cell.act is Act.REGISTER:
                scene.starting = acting
                await eventually("the agent runs", lambda: _runs(scene.trial))
            started = await scene.restart_all(cell)
            await acting
        else:
            await _ACTS[cell.act](scene)
            started = await scene.restart_all(cell)
        await scene.right_again()
        agree_s = time.monotonic() - started
    await scene.nobody_is_lost()
    right_again_s = max([started, *wrong]) - started
    _note(cell, right_again_s=right_again_s, books_agree_s=agree_s)
    return right_again_s


def _note(cell: Cell, **figures: float) -> None:
    if file := os.environ.get(FIGURES):
        rounded = {key: round(value, 3) for key, value in figures.items()}
        line = json.dumps({"cell": str(cell), **rounded})
        with Path(file).open("a", encoding="utf-8") as lines:
            lines.write(f"{line}\n")


async def _runs(trial: Trial) -> bool:
    return trial.agent.pid is not None


_ACTS: Final[Mapping[Act, Callable[[Scene], Coroutine[Any, Any, None]]]] = {
    Act.REGISTER: Scene.register,
    Act.LIST: Scene.toggle_cordon,
    Act.ALLOCATE: Scene.allocate,
    Act.LAYOUT: Scene.toggle_layout,
}


def kill_daemons(folder: Path) -> None:
    """Kill the MPS daemons whose pipes lie below a folder, not their clients."""
    wanted = f"CUDA_MPS_PIPE_DIRECTORY={folder}".encode()
    for found in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (found / "cmdline").read_bytes().split(b"\0")
            if b"-f" in command and wanted in (found / "environ").read_bytes():
                os.kill(int(found.name), signal.SIGKILL)


def gone_for_two_looks(machine: Machine) -> tuple[Machine, Failure]:
    """Let the driver be gone, and give a reason to look at it."""
    machine, _ = operate.report_xid(machine, "7", _APPLICATION_XID)
    failure = Failure(function="nvmlDeviceGetCount_v2", code=Code.DRIVER_NOT_LOADED, times=2)
    return operate.fail_calls(machine, failure)
