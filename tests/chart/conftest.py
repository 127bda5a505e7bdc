"""Helm for the tests that render, a control plane for those that install.

A test that lacks one is skipped and the last lines say so; with ``REQUIRE_CLUSTER=1`` it fails.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.chart import installing, rendering
from tests.chart.tool import HELM, HOW_TO_GET_IT, PROMTOOL
from tests.cluster import leftovers, needs
from tests.cluster.access import Access
from tests.cluster.conftest import pytest_runtest_setup
from tests.cluster.controlplane import ControlPlane
from tests.cluster.waiting import until

__all__ = ["pytest_runtest_setup"]

_NO_HELM: Final = f"there is no helm here; {HOW_TO_GET_IT}"
_NO_PROMTOOL: Final = f"there is no promtool here; {HOW_TO_GET_IT}"
_OFF: Final = f"the chart's tests on a control plane are off (set {needs.SWITCH}=1)"


_AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [{"level": "Metadata"}],
}


def _lack(reason: str) -> None:
    if needs.required():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    """A skip must not look like a pass."""
    yield
    reasons: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", ()):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        reason = text.removeprefix("Skipped: ")
        if reason in (_NO_HELM, _NO_PROMTOOL, _OFF):
            reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count} NOT RUN: {reason}", yellow=True)


@pytest.fixture(scope="session", autouse=True)
def _fresh(request: pytest.FixtureRequest) -> None:
    """With --update-golden, everything is written anew before anything is looked at."""
    if request.config.getoption("--update-golden"):
        rendering.write_all()


@pytest.fixture(scope="session")
def with_helm() -> None:
    """Skips where there is no Helm."""
    if HELM.find() is None:
        _lack(_NO_HELM)


@pytest.fixture(scope="session")
def with_promtool() -> None:
    """Skips where there is no promtool."""
    if PROMTOOL.find() is None:
        _lack(_NO_PROMTOOL)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of this module's own, which writes down who called what."""
    if not needs.wanted():
        pytest.skip(_OFF)
    if lacks := needs.missing(needs.Tier.CONTROL_PLANE):
        _lack("; ".join(lacks))
    leftovers.sweep()
    folder = leftovers.make_folder()
    (folder / "plane").mkdir()
    policy = folder / "audit.yaml"
    policy.write_text(json.dumps(_AUDIT))
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={audit_log(folder / 'plane')}")
    try:
        with ControlPlane(folder / "plane", api_flags=flags) as running:
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def home(plane: ControlPlane) -> Access:
    """A control plane with our namespace and our CRDs, as a release of before left them.

    They stay for all tests: an API server takes its time to forget one.
    """
    marks = {
        "meta.helm.sh/release-name": "gpu-sharing",
        "meta.helm.sh/release-namespace": rendering.NAMESPACE,
    }
    made = [
        installing.annotated(each, marks)
        for each in rendering.objects("default")
        if installing.is_crd(each)
    ]
    installing.create(plane.access, [installing.namespace(), *made])
    until(
        "CRDs are established",
        lambda: all("Established" in each for each in installing.crds(plane.access).values()),
        timeout_s=60,
    )
    return plane.access


def audit_log(folder: Path) -> Path:
    """Where the control plane in a folder writes down its calls."""
    return folder.parent / "audit.log"
