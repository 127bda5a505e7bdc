"""The dashboard: of metrics that exist, in queries that Prometheus understands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.chart import rendering
from tests.chart.test_alerts import metrics
from tests.chart.tool import PROMTOOL

FILE: Final = rendering.CHART / "files" / "dashboard.json"
DASHBOARD: Final[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
WIDTH: Final = 24
"""Columns of Grafana's grid."""


def queries() -> Iterator[tuple[str, str]]:
    """Every query, by its panel."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def test_it_asks_for_metrics_that_exist() -> None:
    for title, query in queries():
        named = set(re.findall(r"\bgpu_sharing_\w+", query))

        assert named, title
        assert named <= metrics().keys(), title
    for variable in DASHBOARD["templating"]["list"]:
        assert set(re.findall(r"\bgpu_sharing_\w+", variable["query"])) <= metrics().keys()


def test_it_groups_by_labels_that_the_metrics_have() -> None:
    for title, query in queries():
        known = {
            label
            for name in re.findall(r"\bgpu_sharing_\w+", query)
            for label in (*metrics_labels(name), "pod", "le")
        }
        for labels in re.findall(r"(?:by|on|group_left) \(([a-z, ]+)\)", query):
            assert set(labels.split(", ")) <= known, title


def metrics_labels(name: str) -> tuple[str, ...]:
    """The labels of a metric, as far as its family says; none for one that has samples already."""
    family = metrics()[name]
    labels = getattr(family, "_labelnames", ())
    return (*labels, *(label for one in family.samples for label in one.labels))


def test_panels_lie_side_by_side_and_explain_themselves() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }

        assert place["x"] + place["w"] <= WIDTH, panel["title"]
        assert not cells & taken, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_chart_carries_it_for_grafanas_sidecar() -> None:
    found = rendering.the("monitoring", "ConfigMap", "gpu-sharing-dashboard")

    assert json.loads(found["data"]["gpu-sharing.json"]) == DASHBOARD
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"


@pytest.mark.usefixtures("with_promtool")
def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    filled = {"$__rate_interval": "5m", "$resource": ".*", "$namespace": ".*"}
    rules = []
    for number, (_, query) in enumerate(queries()):
        for variable, value in filled.items():
            query = query.replace(variable, value)  # noqa: PLW2901 - one after the other
        rules.append({"record": f"dashboard:query:{number}", "expr": query})
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = PROMTOOL.run("check", "rules", str(path))

    assert done.returncode == 0, done.stdout + done.stderr
