"""Simulated machines for the tests of the driver and of the simulator itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sharing.nvml.driver import Driver
from tests.support.simulated_gpus import SimulatedGpus, simulated_gpus

MakeGpus = Callable[..., SimulatedGpus]


@pytest.fixture
def make_gpus(tmp_path: Path) -> MakeGpus:
    def make(*gpus: str) -> SimulatedGpus:
        return simulated_gpus(tmp_path / "gpus.json", list(gpus))

    return make


@pytest.fixture
def h100(make_gpus: MakeGpus) -> SimulatedGpus:
    return make_gpus("2xH100-80GB")


@pytest.fixture
def a100(make_gpus: MakeGpus) -> SimulatedGpus:
    return make_gpus("2xA100-40GB")


@pytest.fixture
def open_driver() -> Iterator[Callable[[SimulatedGpus], Driver]]:
    opened: list[Driver] = []

    def open_on(gpus: SimulatedGpus) -> Driver:
        driver = Driver(gpus.path)
        driver.open()
        opened.append(driver)
        return driver

    yield open_on
    for driver in opened:
        driver.close()
