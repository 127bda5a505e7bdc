"""The agent's options about what containers get: understood, or refused in a sentence."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli.serving import Serving, answers_of, serving_options
from sharing.plugin.binding import Visibility
from sharing.plugin.errors import PluginError
from sharing.plugin.settings import AnswerSettings, Packing, Strategy


def answers(*words: str, simulated: bool = False) -> AnswerSettings:
    """What the words of a command line become."""
    found: list[AnswerSettings] = []

    @click.command()
    @serving_options
    def command(**chosen: object) -> None:
        options: Serving = chosen  # type: ignore[assignment]
        found.append(answers_of(options, simulated=simulated, simulated_files=False))

    result = CliRunner().invoke(command, words)
    if result.exception is not None:
        raise result.exception
    return found[0]


def test_without_options_cdi_names_go_to_the_runtime() -> None:
    assert answers() == AnswerSettings()


def test_the_driver_may_lie_in_a_container_and_shares_may_be_spread() -> None:
    found = answers("--dev-root", "/run/nvidia/driver", "--share-placement", "spread")
    assert found.edits.dev_root == "/run/nvidia/driver"
    assert found.packing is Packing.SPREAD


@pytest.mark.parametrize("strategy", ["envvar", "volume-mounts"])
def test_strategies_that_pods_get_round_are_refused(strategy: str, tmp_path: Path) -> None:
    toolkit = ("--toolkit-config", str(tmp_path / "config.toml"))
    with pytest.raises(PluginError, match="--trust-pod-environment"):
        answers("--device-list-strategy", strategy, *toolkit)
    found = answers("--device-list-strategy", strategy, *toolkit, "--trust-pod-environment")
    assert found.strategy is Strategy(strategy)


def test_the_drivers_own_spec_holds_nvidias_runtime_off(tmp_path: Path) -> None:
    spec = tmp_path / "nvidia.yaml"
    spec.write_text("kind: nvidia.com/gpu\ncontainerEdits: {deviceNodes: [{path: /dev/nvidiactl}]}")
    found = answers("--driver-cdi-spec", str(spec))
    assert found.edits.visibility is Visibility.VOID
    assert found.edits.driver.device_nodes == ("/dev/nvidiactl",)
