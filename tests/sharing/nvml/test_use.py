"""How busy processes and MIG instances keep a GPU, and what is said where nobody can tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sharing.migprofile import MigProfile
from sharing.nvml.codes import Code
from sharing.nvml.driver import Driver
from sharing.nvml.errors import DriverBusyError, NvmlError
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.state import Failure
from tests.support.simulated_gpus import SimulatedGpus, with_load

Open = Callable[[SimulatedGpus], Driver]


def test_each_process_has_its_part_of_the_time(h100: SimulatedGpus, open_driver: Open) -> None:
    driver = open_driver(h100)
    pids = [h100.do(operate.start_process, "0").pid for _ in range(2)]
    assert driver.utilisation(h100.uuid(), 0) == {}

    h100.do(with_load, pids[0], 30)
    assert driver.utilisation(h100.uuid(), 0) == {pids[0]: 30}


def test_in_mig_mode_no_process_has_one_and_instances_do(
    h100: SimulatedGpus, open_driver: Open
) -> None:
    driver, uuid = open_driver(h100), h100.uuid()
    h100.do(operate.set_mig_mode, "0", on=True)
    made = h100.do(operate.create_instance, "0", MigProfile.parse("3g.40gb"))
    process = h100.do(operate.start_process, "0", gi_id=made.id)
    h100.do(with_load, process.pid, 40)

    assert driver.utilisation(uuid, 0) is None
    assert driver.busy(uuid, [made.id]) == {}, "one sample tells nothing"
    assert driver.busy(uuid, [made.id]) == {made.id: 40}
    assert driver.busy(uuid, []) == {}
    assert driver.busy(uuid, [made.id]) == {}, "an instance of the same number is another one"


def test_boards_before_hopper_have_no_monitors(a100: SimulatedGpus, open_driver: Open) -> None:
    a100.do(operate.set_mig_mode, "0", on=True)
    made = a100.do(operate.create_instance, "0", MigProfile.parse("3g.20gb"))
    driver = open_driver(a100)

    assert [driver.busy(a100.uuid(), [made.id]) for _ in range(3)] == [{}, {}, {}]


def test_an_instance_that_is_gone_hides_no_other(h100: SimulatedGpus, open_driver: Open) -> None:
    h100.do(operate.set_mig_mode, "0", on=True)
    made = h100.do(operate.create_instance, "0", MigProfile.parse("3g.40gb"))
    driver, both = open_driver(h100), [made.id, made.id + 5]

    assert [driver.busy(h100.uuid(), both) for _ in range(2)] == [{}, {made.id: 0}]


def test_a_gpu_that_does_not_answer_is_no_idle_gpu(h100: SimulatedGpus, open_driver: Open) -> None:
    driver = open_driver(h100)
    h100.do(operate.lose, "0")

    with pytest.raises(NvmlError):
        driver.utilisation(h100.uuid(), 0)


def test_memory_of_a_cgroup_is_limited_where_the_driver_can(
    h100: SimulatedGpus, open_driver: Open
) -> None:
    assert open_driver(h100).limit_memory(h100.uuid(), "/kubepods/a", 100) is False
    h100.configure(driver_version="615.10")

    assert open_driver(h100).limit_memory(h100.uuid(), "/kubepods/a", 100) is True
    (limit,) = h100.gpu().memory_limits
    assert (limit.cgroup, limit.soft, limit.hard) == ("/kubepods/a", 100 << 20, 100 << 20)


def test_a_refusal_to_limit_memory_is_an_error(h100: SimulatedGpus, open_driver: Open) -> None:
    h100.configure(driver_version="615.10")
    driver = open_driver(h100)
    failure = Failure(function="nvmlDeviceSetMemoryLimits_v1", code=Code.IN_USE, times=1)
    h100.do(operate.fail_calls, failure)

    with pytest.raises(DriverBusyError):
        driver.limit_memory(h100.uuid(), "/kubepods/a", 100)
