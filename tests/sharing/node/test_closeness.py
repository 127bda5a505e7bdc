"""How close GPUs are: from the driver, once, and never an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharing.errors import DriverError
from sharing.node.closeness import ClosenessMatrix, closeness
from sharing.nvml import simulator
from sharing.nvml.codes import TopologyLevel
from sharing.nvml.driver import Driver
from sharing.nvml.observed import Link
from sharing.nvml.simulator import operate
from sharing.nvml.simulator.store import Store


def link(one: str, other: str, level: TopologyLevel, nvlinks: int = 0) -> Link:
    return Link(one=one, other=other, level=level, nvlinks=nvlinks)


def test_nvlinks_outweigh_every_level_and_nearer_levels_further_ones() -> None:
    found = closeness(
        [
            link("a", "b", TopologyLevel.SYSTEM, nvlinks=1),
            link("a", "c", TopologyLevel.INTERNAL),
            link("b", "c", TopologyLevel.SYSTEM),
        ]
    )
    ordered = [found[frozenset(pair)] for pair in ("ab", "ac", "bc")]
    assert ordered == sorted(ordered, reverse=True)
    assert len(set(ordered)) == 3


@pytest.mark.parametrize("level", TopologyLevel)
def test_every_level_of_the_driver_has_a_number(level: TopologyLevel) -> None:
    assert closeness([link("a", "b", level)])[frozenset("ab")] > 0


class Asked:
    """A driver's topology that counts questions and may refuse."""

    def __init__(self) -> None:
        self.times = 0
        self.refuses = False
        self.links: tuple[Link, ...] = (link("a", "b", TopologyLevel.SINGLE),)

    async def __call__(self) -> tuple[Link, ...]:
        self.times += 1
        if self.refuses:
            raise DriverError("GPU a", "is lost")
        return self.links


async def test_the_driver_is_asked_once_for_the_same_gpus() -> None:
    asked = Asked()
    matrix = ClosenessMatrix(asked)
    assert await matrix.of(["a", "b"]) == await matrix.of(["b"])
    assert asked.times == 1
    await matrix.of(["a", "b", "c"])
    assert asked.times == 2


async def test_a_driver_that_refuses_takes_nothing_away_and_is_asked_again() -> None:
    """NVIDIA/k8s-device-plugin#231: link discovery failed, and with it every admission."""
    asked = Asked()
    matrix = ClosenessMatrix(asked)
    before = dict(await matrix.of(["a", "b"]))
    asked.refuses = True
    assert await matrix.of(["a", "b", "c"]) == before
    asked.refuses = False
    await matrix.of(["a", "b", "c"])
    assert asked.times == 3


def test_a_lost_gpu_is_left_out_by_the_driver_and_the_others_keep_their_links(
    tmp_path: Path,
) -> None:
    state = tmp_path / "gpus.json"
    simulator.create(state, "4xH100-80GB")
    Store(state).change(lambda machine: operate.lose(machine, "2"))
    driver = Driver(state)
    driver.open()
    try:
        found = closeness(driver.topology())
    finally:
        driver.close()
    assert len(found) == 3
    assert all(close > 1000 for close in found.values())
