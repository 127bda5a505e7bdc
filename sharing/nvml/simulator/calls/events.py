"""Events: they are in the file, so they reach waiting callers in every process."""

from __future__ import annotations

import time
from typing import Any, Final

from sharing.nvml.codes import WHOLE_DEVICE, Code, EventType
from sharing.nvml.simulator.hardware import RefusedError
from sharing.nvml.simulator.session import EventSet, HandleKind, Session
from sharing.nvml.simulator.state import Event, Machine, Permission
from sharing.nvml.simulator.symbols import (
    address_of,
    export,
    fill,
    number,
    put,
    put_address,
    put_field_address,
)

POLL_S: Final = 0.05
"""How often a wait looks at the file: a stat call, a fifth of a percent of a core in all."""
_ALL: Final = sum(EventType)


@export("nvmlEventSetCreate")
def create(session: Session, answer: Any) -> None:
    """A new, empty event set."""
    put_address(answer, session.new_event_set())


@export("nvmlEventSetFree")
def free(session: Session, handle: Any) -> None:
    """Give an event set back; a wait on it ends."""
    session.event_set(handle).freed = True
    del session.event_sets[address_of(handle)]


@export("nvmlDeviceGetSupportedEventTypes")
def supported(session: Session, handle: Any, answer: Any) -> None:
    """The event types that a GPU can report, as bits."""
    session.gpu(handle)
    put(answer, _ALL)


@export("nvmlDeviceRegisterEvents")
def register(session: Session, handle: Any, types: Any, event_set: Any) -> None:
    """Report a GPU's events of some types from now on; MIG devices report none of their own."""
    gpu = session.gpu(handle)
    wanted = number(types)
    if wanted & ~_ALL:
        raise RefusedError(Code.NOT_SUPPORTED, f"event types {wanted:#x}")
    session.event_set(event_set).sources[gpu.uuid] = (wanted, session.machine().next_event)


@export("nvmlEventSetWait_v2")
def wait(session: Session, handle: Any, answer: Any, timeout_ms: Any) -> None:
    """The next event, or TIMEOUT; GPU_IS_LOST once for each GPU that is gone."""
    waiting = session.event_set(handle)
    deadline = time.monotonic() + number(timeout_ms) / 1000
    boot = session.machine().boot
    while True:
        machine = session.machine()
        if machine.boot != boot or waiting.freed:
            raise RefusedError(Code.UNINITIALIZED, "the event set is no more")
        event = _next(machine, waiting)
        if event:
            _answer(session, machine, event, answer)
            return
        _tell_lost(machine, waiting)
        left = deadline - time.monotonic()
        if left <= 0:
            raise RefusedError(Code.TIMEOUT, "no event")
        time.sleep(min(POLL_S, left))


def _next(machine: Machine, waiting: EventSet) -> Event | None:
    for event in machine.events:
        types, first = waiting.sources.get(event.uuid, (0, 0))
        if event.type & types and event.number >= first:
            waiting.sources[event.uuid] = (types, event.number + 1)
            return event
    return None


def _tell_lost(machine: Machine, waiting: EventSet) -> None:
    for gpu in machine.gpus:
        if not gpu.lost:
            waiting.told_lost.discard(gpu.uuid)
        elif gpu.uuid in waiting.sources and gpu.uuid not in waiting.told_lost:
            waiting.told_lost.add(gpu.uuid)
            raise RefusedError(Code.GPU_IS_LOST, f"{gpu.uuid} fell off the bus")


def _answer(session: Session, machine: Machine, event: Event, answer: Any) -> None:
    """Write an event. Which instance it concerns is for privileged callers only."""
    hidden = machine.permission is Permission.NONE
    gi_id = WHOLE_DEVICE if hidden or event.gi_id is None else event.gi_id
    ci_id = WHOLE_DEVICE if hidden or event.ci_id is None else event.ci_id
    fill(
        answer,
        eventType=event.type,
        eventData=event.data,
        gpuInstanceId=gi_id,
        computeInstanceId=ci_id,
    )
    put_field_address(answer, "device", session.handle(HandleKind.GPU, event.uuid))
