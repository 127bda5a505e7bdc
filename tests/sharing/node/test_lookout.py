"""What a look at the driver says besides the state of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sharing.node.gpus import Gpus
from sharing.node.health import HealthPolicy
from sharing.node.infirmary import Infirmary
from sharing.node.lookout import Lookout
from sharing.nvml.simulator import ageing
from sharing.nvml.simulator.state import Renamed
from tests.support.simulated_gpus import SimulatedGpus, simulated_gpus


async def no_servers(_gpu: str) -> tuple[int, ...]:
    return ()


async def warnings(gpus: SimulatedGpus) -> list[dict[str, object]]:
    """What two looks warn of."""
    driver = Gpus(gpus.path, lambda _: None, wait_s=0.05)
    lookout = Lookout(driver, Infirmary(HealthPolicy(), {}), no_servers)
    try:
        with capture_logs() as logs:
            for _ in range(2):
                lookout.stale = True
                assert await lookout.look(0.0, {})
    finally:
        await driver.close()
    return [dict(log) for log in logs if log["log_level"] == "warning"]


def rename(gpus: SimulatedGpus) -> None:
    change = Renamed(profile="1g.24gb", name="1g.23gb", memory_mib=23680)
    gpus.do(ageing.change_driver, "575.10.01", [change])


def strange(gpus: SimulatedGpus) -> None:
    gpus.configure_gpu(product="NVIDIA Z999 Unheard Of")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (rename, {"event": "driver differs from the catalogue", "board": "RTX-PRO-6000-96GB"}),
        (strange, {"event": "board is not in the catalogue", "board": "NVIDIA Z999 Unheard Of"}),
    ],
)
async def test_where_driver_and_catalogue_differ_is_said_once(
    tmp_path: Path, change: Callable[[SimulatedGpus], None], told: dict[str, str]
) -> None:
    gpus = simulated_gpus(tmp_path / "gpus.json", ["2xRTX-PRO-6000-96GB"])
    change(gpus)

    (warning,) = await warnings(gpus)

    assert told.items() <= warning.items()


async def test_a_board_as_the_catalogue_has_it_is_worth_no_word(tmp_path: Path) -> None:
    assert await warnings(simulated_gpus(tmp_path / "gpus.json", ["8xH100-80GB"])) == []
