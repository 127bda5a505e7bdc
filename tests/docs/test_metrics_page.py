"""The page on metrics says all that the programs expose, and no more.

Its tables are written by ``--update-golden``; the text around them is by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from certs.metrics import CertsMetrics
from sharing.controller.metrics import ControllerMetrics
from sharing.mps.daemons import MpsDaemons
from sharing.mps.program import stand_in
from sharing.node.health import HealthPolicy
from sharing.node.infirmary import Infirmary
from sharing.node.metrics import HealthMetrics
from sharing.node.sharemetrics import ShareMetrics
from sharing.node.status import NodeReport
from sharing.plugin.plugins import DevicePlugins
from sharing.timeslicing.policy import ComputePolicy
from sharing.timeslicing.slices import TimeSlices
from webhook.metrics import Metrics
from webhook.workerhealth import Roster, _Gathered

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "metrics.md"
TABLE = re.compile(r"(<!-- metrics: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
SKIPPED = ("process_",)
"""Prometheus' own, about any process."""


def agent(folder: Path, *, by_share: bool = True) -> Iterable[Metric]:
    nothing = NodeReport()
    yield from HealthMetrics(lambda: nothing, Infirmary(HealthPolicy(), {})).collect()
    yield from ShareMetrics(
        lambda: nothing,
        DevicePlugins(folder, cdi_dir=None),
        MpsDaemons(folder, program=stand_in()),
        TimeSlices(ComputePolicy(), folder / "slices"),
        by_share=by_share,
    ).collect()


def agent_by_share(folder: Path) -> Iterable[Metric]:
    closed = {family.name for family in agent(folder, by_share=False)}
    return [family for family in agent(folder) if family.name not in closed]


def agent_closed(folder: Path) -> Iterable[Metric]:
    return agent(folder, by_share=False)


def controller(_: Path) -> Iterable[Metric]:
    registry = CollectorRegistry()
    ControllerMetrics(registry)
    return registry.collect()


def webhook(_: Path) -> Iterable[Metric]:
    metrics = Metrics()
    metrics.watch_cache("namespaces", lambda: 0.0)
    metrics.watch_folder(lambda: True)
    metrics._profiles.labels("usable")
    yield from metrics.registry.collect()
    yield from _Gathered(Roster(names=("one",)), {}).collect()


def certs(_: Path) -> Iterable[Metric]:
    registry = CollectorRegistry()
    CertsMetrics(registry)
    return registry.collect()


PROGRAMS: dict[str, Callable[[Path], Iterable[Metric]]] = {
    "shares": agent_by_share,
    "agent": agent_closed,
    "controller": controller,
    "webhook": webhook,
    "certs": certs,
}


def labels_of(family: Any) -> list[str]:
    """Labels of a family; one that is filled when it is asked for names them itself."""
    named = list(getattr(family, "_labelnames", ()))
    seen = sorted({name for sample in family.samples for name in sample.labels} - {"le"})
    return named or seen


def table(program: str, folder: Path) -> str:
    rows = ["| metric | labels | meaning |", "|---|---|---|"]
    for family in sorted(PROGRAMS[program](folder), key=lambda one: one.name):
        if family.name.startswith(SKIPPED):
            continue
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in labels_of(family))
        rows.append(f"| `{name}` | {labels} | {family.documentation} |")
    return "\n".join(rows) + "\n"


def test_each_table_is_what_its_program_exposes(short_dir: Path, update_golden: bool) -> None:
    def fresh(match: re.Match[str]) -> str:
        return match[1] + table(match[2], short_dir)

    text = PAGE.read_text("utf-8")
    assert [match[2] for match in TABLE.finditer(text)] == list(PROGRAMS)
    wanted = TABLE.sub(fresh, text)
    if update_golden:
        PAGE.write_text(wanted, "utf-8")
    assert PAGE.read_text("utf-8") == wanted


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_metric_has_our_prefix_a_meaning_and_a_unit_where_it_measures(
    program: str, short_dir: Path
) -> None:
    for family in PROGRAMS[program](short_dir):
        if family.name.startswith(SKIPPED):
            continue
        assert family.name.startswith("gpu_sharing_")
        assert family.documentation.endswith(".")
        assert not re.search(r"_(mib|ms|percent|gb)(_|$)", family.name)


def test_only_the_family_by_share_names_shares_and_pods(short_dir: Path) -> None:
    open_ended = {"share", "pod", "namespace", "container"}

    for program, families in PROGRAMS.items():
        for family in families(short_dir):
            assert program == "shares" or not open_ended & set(labels_of(family)), family.name
