"""No strategy lets a pod's own variables reach another GPU, unless somebody vouches for pods."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.plugin.settings import Strategy
from sharing.plugin.trust import BY_MOUNTS, BY_VARIABLE, refusal

WHERE = Path("/etc/nvidia-container-runtime/config.toml")
SAFE = f"{BY_MOUNTS} = true\n{BY_VARIABLE} = false\n[nvidia-container-runtime]\nmode = 'auto'\n"


@pytest.mark.parametrize("strategy", [Strategy.CDI_CRI, Strategy.CDI_ANNOTATIONS])
@pytest.mark.parametrize("toolkit", [None, "", SAFE])
def test_names_of_cdi_devices_are_out_of_a_pods_reach(
    strategy: Strategy, toolkit: str | None
) -> None:
    assert refusal(strategy, toolkit, WHERE) is None


@pytest.mark.parametrize("toolkit", [None, SAFE])
def test_a_variable_is_never_safe_by_itself(toolkit: str | None) -> None:
    error = refusal(Strategy.ENVVAR, toolkit, WHERE)
    assert error is not None
    assert "a variable of its own" in str(error)
    assert "--trust-pod-environment" in str(error)


def test_mounts_are_safe_where_the_toolkit_looks_at_nothing_else() -> None:
    assert refusal(Strategy.VOLUME_MOUNTS, SAFE, WHERE) is None


@pytest.mark.parametrize(
    ("toolkit", "said"),
    [
        (None, "cannot be read"),
        ("", f"expected in {WHERE}: {BY_MOUNTS} = true"),
        (f"{BY_MOUNTS} = true", f"{BY_VARIABLE} = false"),
        (f"{BY_MOUNTS} = true\n{BY_VARIABLE} = true", "believes the variables"),
        (f'{BY_MOUNTS} = "true"\n{BY_VARIABLE} = false', f"{BY_MOUNTS} = true"),
        ("= =", "is no TOML"),
    ],
)
def test_mounts_are_refused_while_the_toolkit_believes_pods(toolkit: str | None, said: str) -> None:
    error = refusal(Strategy.VOLUME_MOUNTS, toolkit, WHERE)
    assert error is not None
    assert said in str(error)


@given(st.text())
def test_any_file_is_judged_in_one_sentence(toolkit: str) -> None:
    error = refusal(Strategy.VOLUME_MOUNTS, toolkit, WHERE)
    assert error is not None
    assert "\n" not in str(error)
