"""One real cluster of each tier for the whole run, one namespace for each test.

Without ``GPU_SHARING_CLUSTER=1`` or ``REQUIRE_CLUSTER=1`` nothing real is started: the tests that
need it are skipped. With the second one a tier that cannot start is a failure.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from sharing.names import MANAGED_LABEL
from tests.cluster import leftovers, needs
from tests.cluster.box.box import Box
from tests.cluster.controlplane import ControlPlane
from tests.cluster.needs import Tier
from tests.support.forms import OBJECTS
from tests.support.trials import Trial, box_trial

_OFF: Final = f"real-cluster tests are off; make test-cluster runs them (or set {needs.SWITCH}=1)"
_MISSING: Final = "no real cluster here, missing: "
_TIER_OF: Final = {
    "control_plane": Tier.CONTROL_PLANE,
    "scale_plane": Tier.SCALE,
    "node_box": Tier.NODE,
    "second_box": Tier.NODE,
    "own_box": Tier.NODE,
}
_LABELS: Final = {MANAGED_LABEL: "true"}
"""The agent under test serves only nodes that say so."""
_LOGS: Final = "cluster-logs"
_BEGUN: Final = pytest.StashKey[float]()
_TAIL_LINES: Final = 12


def _tiers(item: pytest.Item) -> list[Tier]:
    """The tiers that a test needs: those of its fixtures and those its marker names."""
    fixtures = getattr(item, "fixturenames", ())
    marked = [Tier(name) for mark in item.iter_markers("cluster") for name in mark.args]
    return [tier for name, tier in _TIER_OF.items() if name in fixtures] + marked


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    tiers = _tiers(item)
    if tiers and not needs.wanted():
        pytest.skip(_OFF)
    for tier in tiers:
        if lacks := needs.missing(tier):
            text = f"{_MISSING}{'; '.join(lacks)}"
            if needs.required():
                pytest.fail(text, pytrace=False)
            pytest.skip(text)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    """A skip must not look like a pass: the last lines say what did not run, and why."""
    yield
    reasons: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", ()):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        reason = text.removeprefix("Skipped: ")
        if reason.startswith((_OFF, _MISSING)):
            reasons[reason] = reasons.get(reason, 0) + 1
    for kept in _kept_since(terminalreporter.config):
        terminalreporter.write_line(f"logs were kept in {kept}")
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count} NOT RUN: {reason}", yellow=True)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_BEGUN] = time.time()


def _kept_since(config: pytest.Config) -> list[Path]:
    """Logs that this run kept, also those of its workers."""
    if not config.pluginmanager.hasplugin("cacheprovider"):
        return []
    folders = sorted(config.cache.mkdir(_LOGS).iterdir())
    return [each for each in folders if each.stat().st_mtime >= config.stash[_BEGUN]]


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Tier a: etcd and API server."""
    yield from _control_plane(request, "control-plane", scheduler=False)


@pytest.fixture(scope="session")
def scale_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Tier c: etcd, API server and scheduler; tests bring a ``Fleet`` of nodes."""
    yield from _control_plane(request, "scale-plane", scheduler=True)


def _control_plane(
    request: pytest.FixtureRequest, tier: str, *, scheduler: bool
) -> Iterator[ControlPlane]:
    leftovers.sweep()
    folder = leftovers.make_folder()
    try:
        with ControlPlane(folder, scheduler=scheduler) as running:
            yield running
    finally:
        if kept := _kept_logs(request, tier):
            shutil.copytree(folder / "logs", kept, dirs_exist_ok=True)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def node_box(request: pytest.FixtureRequest) -> Iterator[Box]:
    """Tier b: a whole node. Resources of a node are shared by all tests: name yours uniquely."""
    with Box(labels=_LABELS) as running:
        yield running
        running.keep_logs = _kept_logs(request, "node-box")


@pytest.fixture(scope="session")
def own_box(request: pytest.FixtureRequest) -> Iterator[Box]:
    """Tier b once more, with the product on it and nothing else: it is rebooted, too."""
    with Box() as running:
        yield running
        running.keep_logs = _kept_logs(request, "own-box")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def trial(own_box: Box) -> AsyncIterator[Trial]:
    """The product's programs on the box of its own, with everything that ``forms`` names."""
    async with box_trial(own_box, OBJECTS) as running:
        yield running


@pytest.fixture(scope="module")
def second_box(request: pytest.FixtureRequest, node_box: Box) -> Iterator[Box]:
    """A second node of tier b's cluster, for the tests of one module."""
    with Box(joins=node_box) as running:
        yield running
        running.keep_logs = _kept_logs(request, "second-box")
    node_box.access.call("DELETE", f"/api/v1/nodes/{running.node}")


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of tier a for one test."""
    with control_plane.access.namespace() as name:
        yield name


@pytest.fixture
def box_namespace(node_box: Box) -> Iterator[str]:
    """A namespace of tier b for one test, ready for pods."""
    with node_box.access.namespace(account=True) as name:
        yield name


def _kept_logs(request: pytest.FixtureRequest, tier: str) -> Path | None:
    """Where logs go when a test failed: pytest's cache, which is told in the summary."""
    cache = request.config.cache
    if not request.session.testsfailed or cache is None:
        return None
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    return cache.mkdir(_LOGS) / (f"{tier}-{worker}" if worker else tier)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The tails of the cluster's logs go with a test that failed."""
    report = yield
    if report.failed:
        for name in _TIER_OF:
            cluster = getattr(item, "funcargs", {}).get(name)
            if cluster is not None:
                report.sections.append((f"logs of {name}", cluster.log_tail(lines=_TAIL_LINES)))
    return report
