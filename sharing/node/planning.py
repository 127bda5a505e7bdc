"""From observed to wanted: which steps a GPU needs, in which order, and who is in the way.

What a pod or a process holds is never destroyed; the steps that need it gone say so and wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sharing.layout import GpuLayout
from sharing.miglayout import Placed, legal_placements
from sharing.mode import Mode
from sharing.node.held import Hold
from sharing.node.observed import GpuState, Instance
from sharing.node.plan import Blocker, BlockerKind, GpuPlan, Kubelet, PlannedStep
from sharing.node.step import (
    Advertise,
    CreateInstance,
    DestroyInstance,
    ResetGpu,
    SetMigMode,
    StartMps,
    Step,
    StopMps,
    Withdraw,
)
from sharing.node.target import Target, is_real, occupies, strangers, target_of
from sharing.share import place_of

UNKNOWN_HOLDERS = Blocker(
    BlockerKind.KUBELET, "the kubelet does not say who holds which share (PodResources)"
)


def plan_gpu(
    gpu: GpuState, layout: GpuLayout, kubelet: Kubelet | None, *, served: GpuLayout | None
) -> GpuPlan:
    """The steps that take a GPU to a layout; none if it is there.

    Args:
        gpu: The GPU as it is.
        layout: What it shall be; one that its board can have (see ``target.refusal``).
        kubelet: Who holds what; None while the kubelet does not answer, which blocks every step
            that could take something from somebody.
        served: The layout that the agent offers on this GPU now; None for none.
    """
    holds = kubelet.held.on(gpu.uuid) if kubelet else ()
    target = target_of(gpu, layout, holds)
    if gpu.lost:
        return GpuPlan(gpu=gpu.uuid, target=target)
    situation = _Situation(gpu=gpu, target=target, kubelet=kubelet, holds=holds)
    creations = situation.creations()
    steps = [
        *situation.withdrawal(),
        *situation.mps_stop(),
        *situation.destructions(),
        *situation.mode_change(),
        *creations,
        *situation.mps_start(),
        *situation.mps_start_in_instances(creations),
    ]
    if served != layout or any(
        isinstance(one.step, CreateInstance | StartMps | SetMigMode | ResetGpu) for one in steps
    ):
        steps.append(situation.offering(steps))
    return GpuPlan(gpu=gpu.uuid, target=target, steps=tuple(steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Situation:
    """One GPU, what it shall be and who uses it: each method gives the steps of one kind."""

    gpu: GpuState
    target: Target
    kubelet: Kubelet | None
    holds: tuple[Hold, ...]

    @property
    def mig_wanted(self) -> bool:
        return self.target.layout.mode is Mode.MIG

    @property
    def mps_wanted(self) -> bool:
        return self.target.layout.mode is Mode.MPS

    @property
    def doomed(self) -> tuple[Instance, ...]:
        """Instances that the target has no place for, half-made ones included."""
        stay = set(self.target.places)
        return tuple(
            one
            for one in sorted(self.gpu.instances, key=lambda one: (one.placement, one.gi_id))
            if one.placed is None or one.placed not in stay
        )

    def users(self) -> tuple[Blocker, ...]:
        """Everybody on the GPU."""
        if self.kubelet is None:
            return (UNKNOWN_HOLDERS,)
        pods = [_pod(hold) for hold in self.holds if occupies(self.gpu, hold)]
        return _once([*pods, *self._processes()])

    def users_of(self, instance: Instance) -> tuple[Blocker, ...]:
        """Everybody in one instance, and processes that the driver puts in none."""
        if self.kubelet is None:
            return (UNKNOWN_HOLDERS,)
        pods = [_pod(hold) for hold in self._holds_of(instance)]
        return _once([*pods, *self._processes(instance)])

    def _holds_of(self, instance: Instance) -> list[Hold]:
        """Those of its share, or of the shares that are cut from it."""
        mine = instance.device_id(self.gpu.uuid)
        return [hold for hold in self.holds if hold.place == mine]

    def _processes(self, instance: Instance | None = None) -> list[Blocker]:
        """Processes with work on the GPU, or in one instance of it or in none."""
        if not self.gpu.processes_listed:
            return [_unlisted(self.gpu)]
        return [
            _process(self.gpu, one.pid)
            for one in self.gpu.work
            if instance is None or one.gi_id in (None, instance.gi_id)
        ]

    def withdrawal(self) -> list[PlannedStep]:
        """What the kubelet still counts and the target does not have."""
        if self.kubelet is None:
            return []
        counted = self.kubelet.on(self.gpu.uuid)
        gone = counted - self.target.offers(self.gpu)
        if self._mode_changes or (self.gpu.mps is not None and not self.mps_wanted):
            gone = counted
        if not gone:
            return []
        return [PlannedStep(step=Withdraw(gpu=self.gpu.uuid, shares=tuple(sorted(gone))))]

    @property
    def _mode_changes(self) -> bool:
        return self.gpu.mig_enabled is not self.mig_wanted

    def mps_stop(self) -> list[PlannedStep]:
        """The GPU's daemon, and those of instances that are not wanted or not cut so any more."""
        gpu, stays = self.gpu, set(self.target.places)
        steps = []
        if gpu.mps is not None and not self.mps_wanted:
            step = StopMps(gpu=gpu.uuid, layout=gpu.mps)
            steps.append(PlannedStep(step=step, blocked_by=self.users()))
        for one in sorted(gpu.instances, key=lambda one: (one.placement, one.gi_id)):
            at = Placed(one.profile, one.placement)
            if one.mps is None or (at in stays and self.target.layout.mps_of(one.profile)):
                continue
            step = StopMps(gpu=gpu.uuid, layout=one.mps, instance=at)
            steps.append(PlannedStep(step=step, blocked_by=self.users_of(one)))
        return steps

    def destructions(self) -> list[PlannedStep]:
        return [
            PlannedStep(
                step=DestroyInstance(
                    gpu=self.gpu.uuid,
                    profile=one.profile,
                    placement=one.placement,
                    gi_id=one.gi_id,
                ),
                blocked_by=self.users_of(one),
            )
            for one in self.doomed
        ]

    def mode_change(self) -> list[PlannedStep]:
        if not self._mode_changes:
            return []
        uuid, wanted, resets = self.gpu.uuid, self.mig_wanted, not self.gpu.board.resetless
        step: Step = SetMigMode(gpu=uuid, enabled=wanted, resets=resets)
        if resets and self.gpu.mig_pending is wanted:
            step = ResetGpu(gpu=uuid, enabled=wanted)
        return [PlannedStep(step=step, blocked_by=self.users())]

    def creations(self) -> list[PlannedStep]:
        there = set(self.gpu.placed)
        missing = [at for at in self.target.places if at not in there]
        if not self.mig_wanted or not missing:
            return []
        waits = self.users() if self._mode_changes else ()
        beside = self._stuck()
        steps = []
        for at in missing:
            blocked = waits or self._obstacles(at, beside)
            steps.append(
                PlannedStep(
                    step=CreateInstance(
                        gpu=self.gpu.uuid, profile=at.profile, placement=at.placement
                    ),
                    blocked_by=blocked,
                )
            )
            if not blocked:
                beside = (*beside, at)
        return steps

    def _stuck(self) -> tuple[Placed, ...]:
        """What will lie on the GPU once everything that may be destroyed is."""
        freed = {one.gi_id for one in self.doomed if not self.users_of(one)}
        return tuple(
            Placed(one.profile, one.placement)
            for one in self.gpu.instances
            if one.gi_id not in freed
        )

    def _obstacles(self, wish: Placed, beside: tuple[Placed, ...]) -> tuple[Blocker, ...]:
        """Who has to go before an instance can be made; nobody if it fits now."""
        stuck = [one for one in self.doomed if self.users_of(one)]
        if not stuck or wish.placement in legal_placements(self.gpu.board, wish.profile, beside):
            return ()
        return _once([blocker for one in stuck for blocker in self.users_of(one)])

    def mps_start(self) -> list[PlannedStep]:
        layout = self.target.layout
        if not self.mps_wanted or self.gpu.mps == layout:
            return []
        step = StartMps(gpu=self.gpu.uuid, layout=layout, before=self.gpu.mps)
        return [PlannedStep(step=step, blocked_by=self._in_the_way_of_mps())]

    def _in_the_way_of_mps(self) -> tuple[Blocker, ...]:
        """Those whose shares the layout lacks; processes too, unless they are its own clients."""
        first = self.users() if self._mode_changes else ()
        real = [hold for hold in self.holds if is_real(self.gpu, hold)]
        if self.kubelet is None or not real:
            return self.users() if self.gpu.mps is None else first
        return _once([*first, *(_pod(hold) for hold in self._strangers())])

    def mps_start_in_instances(self, creations: Sequence[PlannedStep]) -> list[PlannedStep]:
        """Daemons of MIG devices: once the instance is there, and has nobody of before."""
        waits = {
            Placed(one.step.profile, one.step.placement): one.blocked_by
            for one in creations
            if isinstance(one.step, CreateInstance)
        }
        there = {one.placed: one for one in self.gpu.instances if one.placed is not None}
        steps = []
        for at in self.target.places:
            layout, known = self.target.layout.mps_of(at.profile), there.get(at)
            before = None if known is None else known.mps
            if layout is None or before == layout:
                continue
            step = StartMps(gpu=self.gpu.uuid, layout=layout, before=before, instance=at)
            blocked = waits.get(at, ()) if known is None else self._in_the_way_in(known)
            steps.append(PlannedStep(step=step, blocked_by=blocked))
        return steps

    def _in_the_way_in(self, instance: Instance) -> tuple[Blocker, ...]:
        """As for a GPU's daemon: strangers; without holders, processes of whomever."""
        holds = self._holds_of(instance)
        if self.kubelet is None or not holds:
            return self.users_of(instance) if instance.mps is None else ()
        return _once(_pod(hold) for hold in self._strangers() if hold in holds)

    def _strangers(self) -> tuple[Hold, ...]:
        return strangers(self.gpu, self.target, self.holds)

    def offering(self, steps: Sequence[PlannedStep]) -> PlannedStep:
        """The last step; waits for all that the target needs, and for strangers to leave."""
        needed = [
            blocker for one in steps if not self._clears(one.step) for blocker in one.blocked_by
        ]
        if self.mig_wanted:
            places = {place_of(offer.device_id) for offer in self.target.offers(self.gpu)}
            leave = [
                hold for hold in self._strangers() if hold.mig_place is None or hold.place in places
            ]
        else:
            leave = list(self._strangers())
        step = Advertise(gpu=self.gpu.uuid, layout=self.target.layout)
        return PlannedStep(step=step, blocked_by=_once(needed + [_pod(hold) for hold in leave]))

    def _clears(self, step: Step) -> bool:
        """Whether a step takes away what the target lacks, which what is offered need not await."""
        if isinstance(step, StopMps):
            return step.instance is not None and step.instance not in self.target.places
        return isinstance(step, DestroyInstance)


def _pod(hold: Hold) -> Blocker:
    return Blocker(BlockerKind.POD, f"{hold} holds {hold.device_id}")


def _process(gpu: GpuState, pid: int) -> Blocker:
    return Blocker(BlockerKind.PROCESS, f"process {pid} uses GPU {gpu.index} ({gpu.uuid})")


def _unlisted(gpu: GpuState) -> Blocker:
    return Blocker(
        BlockerKind.PROCESS,
        f"the driver does not say which processes use GPU {gpu.index} ({gpu.uuid})",
    )


def _once(blockers: Iterable[Blocker]) -> tuple[Blocker, ...]:
    return tuple(sorted(set(blockers)))
