"""Events reach waiting callers, in this process and in others."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from sharing.migprofile import MigProfile
from sharing.nvml.driver import Driver
from sharing.nvml.errors import DriverUnavailableError
from sharing.nvml.observed import DriverEvent, EventKind
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Permission
from tests.support.simulated_gpus import SimulatedGpus

OpenDriver = Callable[[SimulatedGpus], Driver]
WAIT_S = 10.0


def test_an_xid_names_gpu_number_and_instance(h100: SimulatedGpus, open_driver: OpenDriver) -> None:
    driver = open_driver(h100)
    driver.set_mig_mode(h100.uuid(), on=True)
    made = h100.do(operate.create_instance, "0", MigProfile.parse("2g.20gb"))
    with driver.watch() as watch:
        h100.do(operate.report_xid, "0", 13, gi_id=made.id)
        h100.do(operate.report_xid, "1", 31)
        events = [watch.wait(WAIT_S), watch.wait(WAIT_S)]
    assert events == [
        DriverEvent(kind=EventKind.XID, uuid=h100.uuid(0), data=13, gi_id=made.id, ci_id=0),
        DriverEvent(kind=EventKind.XID, uuid=h100.uuid(1), data=31),
    ]


def test_what_happened_before_the_watch_is_not_told(
    h100: SimulatedGpus, open_driver: OpenDriver
) -> None:
    driver = open_driver(h100)
    h100.do(operate.report_xid, "0", 31)
    with driver.watch() as watch:
        assert watch.wait(0.05) is None


def test_a_grave_xid_comes_with_the_recommended_action(
    h100: SimulatedGpus, open_driver: OpenDriver
) -> None:
    driver = open_driver(h100)
    with driver.watch() as watch:
        h100.do(operate.report_xid, "1", 95)
        kinds = [event.kind for event in (watch.wait(WAIT_S), watch.wait(WAIT_S)) if event]
    assert kinds == [EventKind.XID, EventKind.RECOVERY_ACTION]
    assert driver.observe().gpus[1].recovery_action == 1


def test_the_unprivileged_do_not_learn_which_instance_it_was(
    h100: SimulatedGpus, open_driver: OpenDriver
) -> None:
    driver = open_driver(h100)
    driver.set_mig_mode(h100.uuid(), on=True)
    made = h100.do(operate.create_instance, "0", MigProfile.parse("2g.20gb"))
    with driver.watch() as watch:
        h100.configure(permission=Permission.NONE)
        h100.do(operate.report_xid, "0", 13, gi_id=made.id)
        event = watch.wait(WAIT_S)
    assert event is not None
    assert (event.data, event.gi_id, event.ci_id) == (13, None, None)


def test_a_lost_gpu_ends_the_wait(h100: SimulatedGpus, open_driver: OpenDriver) -> None:
    driver = open_driver(h100)
    with driver.watch() as watch:
        h100.do(operate.lose, "0")
        event = watch.wait(WAIT_S)
        assert event is not None
        assert (event.kind, event.data) == (EventKind.LOST, operate.XID_LOST)
    assert driver.observe().gpus[0].lost


def test_foreign_mig_changes_are_told(h100: SimulatedGpus, open_driver: OpenDriver) -> None:
    driver = open_driver(h100)
    with driver.watch() as watch:
        h100.do(operate.set_mig_mode, "1", on=True)
        event = watch.wait(WAIT_S)
    assert event == DriverEvent(kind=EventKind.MIG_CONFIG, uuid=h100.uuid(1))


def test_a_gpu_that_is_lost_already_is_left_to_polling(
    h100: SimulatedGpus, open_driver: OpenDriver
) -> None:
    driver = open_driver(h100)
    h100.do(operate.lose, "0")
    with driver.watch() as watch:
        h100.do(operate.report_xid, "1", 31)
        event = watch.wait(WAIT_S)
    assert event is not None
    assert event.uuid == h100.uuid(1)


def test_a_reboot_ends_the_watch(h100: SimulatedGpus, open_driver: OpenDriver) -> None:
    driver = open_driver(h100)
    with driver.watch() as watch:
        h100.do(operate.reboot)
        with pytest.raises(DriverUnavailableError):
            watch.wait(WAIT_S)


def test_closing_ends_a_wait_in_another_thread(
    h100: SimulatedGpus, open_driver: OpenDriver
) -> None:
    watch = open_driver(h100).watch()
    told: list[DriverEvent | None] = []
    waiting = threading.Thread(target=lambda: told.append(watch.wait(60.0)))
    waiting.start()
    watch.close()
    waiting.join(WAIT_S)
    assert not waiting.is_alive()
    assert told == [None]


def test_an_event_of_another_process_arrives(h100: SimulatedGpus, open_driver: OpenDriver) -> None:
    program = (
        "import sys; from pathlib import Path; from sharing.nvml.simulator import operate;"
        "from sharing.nvml.simulator.store import Store;"
        "Store(Path(sys.argv[1])).change(lambda m: operate.report_xid(m, '0', 48))"
    )
    with open_driver(h100).watch() as watch:
        subprocess.run([sys.executable, "-c", program, str(h100.path)], check=True, timeout=60)
        event = watch.wait(WAIT_S)
    assert event is not None
    assert (event.kind, event.data) == (EventKind.XID, 48)
