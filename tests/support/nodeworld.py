"""A GPU, its kubelet and its pods as values: what a plan's steps do, and what they must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sharing.board import Board, Placement
from sharing.layout import GpuLayout
from sharing.miglayout import Placed, legal_placements
from sharing.migprofile import MigProfile
from sharing.mode import Mode
from sharing.node.held import Held, Hold, Holder
from sharing.node.observed import GpuProcess, GpuState, Instance
from sharing.node.offer import offer_of
from sharing.node.plan import GpuPlan, Kubelet
from sharing.node.planning import plan_gpu
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
from sharing.node.target import Offered, offered
from sharing.share import place_of
from sharing.shareclass import parse_resource_name
from sharing.size import OneOf

MPS_SERVER = GpuProcess(pid=900, mps_server=True)


def bare_gpu(board: Board, uuid: str = "GPU-0") -> GpuState:
    """A GPU as it leaves the factory."""
    return GpuState(
        index=0, uuid=uuid, board=board, product=board.name, memory_mib=board.memory_mib
    )


@dataclass
class World:
    """One node with one GPU; refuses, by assertion, what hardware and tenants would suffer from."""

    gpu: GpuState
    wanted: GpuLayout
    served: GpuLayout | None = None
    listed: frozenset[Offered] = frozenset()
    """What the agent told the kubelet last."""
    counted: frozenset[Offered] = frozenset()
    """What the kubelet has taken in of it."""
    holds: dict[Offered, Hold] = field(default_factory=dict)
    made: int = 0
    blind: bool = False
    """Whether the driver refuses to list processes."""

    # -- the agent

    def view(self) -> Kubelet:
        held = Held.of(self.holds.values())
        return Kubelet(held=held, offered=self.counted).with_told(self.listed)

    def plan(self, view: Kubelet | None = None) -> GpuPlan:
        gpu = replace(self.gpu, processes=(), processes_listed=False) if self.blind else self.gpu
        return plan_gpu(gpu, self.wanted, view or self.view(), served=self.served)

    def turn(
        self,
        *,
        meanwhile: Callable[[], None] = lambda: None,
        crash_after: int | None = None,
        refuse_after: int | None = None,
    ) -> GpuPlan:
        """One pass of the agent: look, offer, do what is ready; perhaps die on the way.

        Args:
            meanwhile: What happens between the look and the first step.
            crash_after: The agent dies before this step.
            refuse_after: The driver refuses this step, so the rest is not tried.
        """
        view = self.view()
        plan = self.plan(view)
        meanwhile()
        offer = offer_of(self.gpu, plan.target, view)
        healthy = () if self.gpu.lost else offer.shares
        self.listed = frozenset(offered(share) for share in healthy)
        if plan.ready and not isinstance(plan.ready[0], Advertise):
            self.served = None
        physical = [step for step in plan.ready if not isinstance(step, Advertise | Withdraw)]
        for done, step in enumerate(physical):
            if done == crash_after:
                self.crash()
                return plan
            if done == refuse_after or not self.allows(step):
                return plan
            self.do(step)
        if not physical and any(isinstance(step, Advertise) for step in plan.ready):
            self.served = self.wanted
        return plan

    def classes_told(self) -> list[str]:
        """Resources of which the kubelet has yet to hear something."""
        return sorted({one.resource for one in self.listed ^ self.counted})

    def take_in(self, resource: str) -> None:
        """The kubelet hears of one class; each has a stream of its own."""
        told = {one for one in self.listed if one.resource == resource}
        others = {one for one in self.counted if one.resource != resource}
        self.counted = frozenset(told | others)

    def take_in_all(self) -> None:
        """The kubelet hears of all classes, in the worst order: what is new first."""
        old = {one.resource for one in self.counted}
        for resource in sorted(self.classes_told(), key=lambda one: (one in old, one)):
            self.take_in(resource)
            self.check()

    def crash(self) -> None:
        """The agent dies: the kubelet's streams end, what MPS served is on disk."""
        self.served = None
        self.listed = self.counted = frozenset()

    def settle(self, turns: int = 30) -> None:
        for _ in range(turns):
            self.turn()
            self.take_in_all()
            if not self.plan().steps:
                return
        raise AssertionError(f"no end in sight: {self.plan()}")

    def allows(self, step: Step) -> bool:
        """Whether the driver does a step; what happened since the look may stand against it."""
        if self.gpu.lost:
            return False
        match step:
            case DestroyInstance(gi_id=gi_id):
                return gi_id in {one.gi_id for one in self.gpu.instances}
            case CreateInstance(profile=profile, placement=placement):
                legal = legal_placements(self.gpu.board, profile, self.occupied)
                return self.gpu.mig_enabled and placement in legal
            case SetMigMode() | ResetGpu():
                return not self.gpu.instances
            case StartMps(instance=at) | StopMps(instance=at) if at is not None:
                return at in self.gpu.placed
            case _:
                return True

    @property
    def occupied(self) -> tuple[Placed, ...]:
        """All instances, half-made ones too: they take their place."""
        return tuple(Placed(one.profile, one.placement) for one in self.gpu.instances)

    # -- what steps do

    def do(self, step: Step) -> None:
        match step:
            case DestroyInstance():
                self._destroy(step)
            case CreateInstance():
                self._create(step)
            case SetMigMode(enabled=enabled) | ResetGpu(enabled=enabled):
                assert not self.gpu.instances
                assert not self.users()
                self.gpu = replace(self.gpu, mig_enabled=enabled, mig_pending=enabled)
            case StopMps(instance=at) if at is not None:
                self._change_mps(at, None)
            case StartMps(instance=at, layout=layout) if at is not None:
                self._change_mps(at, layout)
            case StopMps():
                assert not self.users()
                self.gpu = replace(self.gpu, mps=None, processes=self.gpu.work)
            case StartMps(layout=layout):
                assert not self.gpu.mig_enabled
                served = (*self.gpu.work, MPS_SERVER)
                self.gpu = replace(self.gpu, mps=layout, processes=served)
            case _:
                raise AssertionError(step)

    def _change_mps(self, at: Placed, layout: GpuLayout | None) -> None:
        """Another MPS daemon for a MIG device; only limits change under its clients."""
        (instance,) = [one for one in self.gpu.instances if one.placed == at]
        if layout is None or instance.mps is None:
            assert not [one for one in self.gpu.work if one.gi_id == instance.gi_id]
        if layout is None:
            assert not self.holds_in(instance)
        server = GpuProcess(pid=900 + instance.gi_id, gi_id=instance.gi_id, mps_server=True)
        self._end_daemon(instance)
        self._replace(instance, replace(instance, mps=layout))
        if layout is not None:
            self.gpu = replace(self.gpu, processes=(*self.gpu.processes, server))

    def _replace(self, instance: Instance, *others: Instance) -> None:
        rest = (one for one in self.gpu.instances if one.gi_id != instance.gi_id)
        self.gpu = replace(self.gpu, instances=(*others, *rest))

    def _end_daemon(self, instance: Instance) -> None:
        left = tuple(
            one
            for one in self.gpu.processes
            if not (one.mps_server and one.gi_id == instance.gi_id)
        )
        self.gpu = replace(self.gpu, processes=left)

    def holds_in(self, instance: Instance) -> list[Hold]:
        """Those of a share that an instance is or is cut into."""
        mine = instance.device_id(self.gpu.uuid)
        return [hold for hold in self.holds.values() if hold.place == mine]

    def users(self) -> list[object]:
        held = [hold for one, hold in self.holds.items() if self.works(one)]
        return [*held, *self.gpu.work]

    def works(self, share: Offered) -> bool:
        """Whether a pod can have work there: in MIG mode nothing runs on a GPU as a whole."""
        whole = Hold(device_id=share.device_id, resource=share.resource).mig_place is None
        return self.exists(share) and not (whole and self.gpu.mig_enabled)

    def _destroy(self, step: DestroyInstance) -> None:
        (instance,) = [one for one in self.gpu.instances if one.gi_id == step.gi_id]
        mine = instance.device_id(self.gpu.uuid)
        assert not self.holds_in(instance)
        assert not [one for one in self.gpu.processes if one.gi_id == step.gi_id]
        assert mine is None or mine not in {place_of(one.device_id) for one in self.counted}
        left = tuple(one for one in self.gpu.instances if one is not instance)
        self.gpu = replace(self.gpu, instances=left)

    def _create(self, step: CreateInstance) -> None:
        assert self.gpu.mig_enabled
        legal = legal_placements(self.gpu.board, step.profile, self.occupied)
        assert step.placement in legal
        self._add(step.profile, step.placement)

    def _add(self, profile: MigProfile, placement: Placement) -> None:
        self.made += 1
        instance = Instance(
            profile=profile,
            placement=placement,
            gi_id=self.made,
            mig_uuid=f"MIG-{self.made}",
            memory_mib=self.gpu.board.mig_profile(profile).memory_mib,
        )
        self.gpu = replace(self.gpu, instances=(*self.gpu.instances, instance))

    # -- pods, processes and accidents

    def exists(self, share: Offered) -> bool:
        hold = Hold(device_id=share.device_id, resource=share.resource)
        if hold.mig_place is None:
            return True
        return any(one.device_id(self.gpu.uuid) == hold.place for one in self.gpu.instances)

    def take(self, share: Offered, pod: str) -> None:
        if share in self.holds or not self.exists(share):
            return  # somebody took the instance away behind the agent's back
        assert share.device_id not in {one.device_id for one in self.holds}, "one id, two classes"
        holder = Holder(namespace="ns", pod=pod, container="main")
        self.holds[share] = Hold(device_id=share.device_id, resource=share.resource, holder=holder)

    def release(self, share: Offered) -> None:
        del self.holds[share]

    def start_process(self, gi_id: int | None) -> None:
        process = GpuProcess(pid=1000 + len(self.gpu.processes), gi_id=gi_id)
        self.gpu = replace(self.gpu, processes=(*self.gpu.processes, process))

    def stop_processes(self) -> None:
        """All work ends; the server of an MPS daemon stays, as the real one does."""
        servers = tuple(one for one in self.gpu.processes if one.mps_server)
        self.gpu = replace(self.gpu, processes=servers)

    def half_make(self, gi_id: int) -> None:
        """Somebody destroys a compute instance, or dies between the two creations."""
        (instance,) = [one for one in self.gpu.instances if one.gi_id == gi_id]
        self._end_daemon(instance)
        self._replace(instance, replace(instance, mig_uuid=None, mps=None))

    def foreign_create(self, profile: MigProfile, choose: Callable[[int], int]) -> None:
        """Somebody else makes an instance, if there is room; ``choose`` takes one of n places."""
        legal = legal_placements(self.gpu.board, profile, self.occupied)
        if self.gpu.mig_enabled and legal:
            self._add(profile, legal[choose(len(legal))])

    def foreign_destroy(self, gi_id: int) -> None:
        """Somebody else destroys an instance that no process uses; a pod may hold it."""
        (instance,) = [one for one in self.gpu.instances if one.gi_id == gi_id]
        self._end_daemon(instance)
        self._replace(instance)

    def lose(self) -> None:
        """The GPU falls off the bus; what runs on it ends."""
        self.gpu = replace(self.gpu, lost=True, processes=())

    def come_back(self) -> None:
        """A reset brings it back, empty."""
        self.gpu = replace(self.gpu, lost=False, instances=())

    def leave_mode_pending(self) -> None:
        """Somebody else asks for the other MIG mode and goes away before the reset."""
        if not self.gpu.board.resetless and self.gpu.board.mig_capable:
            self.gpu = replace(self.gpu, mig_pending=not self.gpu.mig_enabled)

    def reboot(self) -> None:
        keeps_mode = not self.gpu.board.resetless
        self.gpu = replace(
            self.gpu,
            lost=False,
            instances=(),
            processes=(),
            mps=None,
            mig_enabled=self.gpu.mig_pending and keeps_mode,
            mig_pending=self.gpu.mig_pending and keeps_mode,
        )
        self.crash()

    # -- what must hold

    def check(self) -> None:
        """The sum of shares that are or can be handed out never exceeds the GPU."""
        out = {one for one in {*self.holds, *self.counted} if self.exists(one)}
        total = sum((self._worth(one) for one in out), Fraction(0))
        assert total <= 1, sorted(out)
        ids = [one.device_id for one in out]
        assert len(ids) == len(set(ids)), sorted(out)
        for instance in {place_of(one) for one in ids} - {self.gpu.uuid}:
            inside = [one for one in out if place_of(one.device_id) == instance]
            assert sum(map(self._part, inside), Fraction(0)) <= 1, sorted(inside)

    @staticmethod
    def _part(share: Offered) -> Fraction:
        """The part of its MIG instance that a share is."""
        share_class = parse_resource_name(share.resource)
        assert share_class is not None
        return share_class.size.fraction if isinstance(share_class.size, OneOf) else Fraction(1)

    def _worth(self, share: Offered) -> Fraction:
        share_class = parse_resource_name(share.resource)
        assert share_class is not None
        if share_class.instance is not None:
            slices = Fraction(share_class.instance.gpu_slices, self.gpu.board.mig_compute_slices)
            return slices * self._part(share)
        if share_class.mode is Mode.EXCLUSIVE:
            return Fraction(1)
        if isinstance(share_class.size, OneOf):
            return share_class.size.fraction
        return Fraction(0)
