"""The rendered files are what the chart makes, and the chart's copies are what they copy."""

from __future__ import annotations

import pytest

from tests.chart import rendering

COPIED = sorted(rendering.COPIES)


@pytest.mark.parametrize("folder", COPIED)
def test_the_chart_carries_exactly_the_files_of_deploy(folder: str) -> None:
    assert rendering.carried(folder) == rendering.copied(folder), "make golden copies them"


def test_the_chart_carries_the_entries_that_the_webhook_says() -> None:
    assert rendering.WEBHOOKS.read_text("utf-8") == rendering.webhooks(), "make golden writes them"


@pytest.mark.usefixtures("with_helm")
@pytest.mark.parametrize("values", rendering.SETS)
def test_a_value_set_renders_to_its_golden_file(values: str) -> None:
    expected = rendering.golden(values).read_text("utf-8")

    assert rendering.render(values) == expected, "make golden writes it; read the diff"


def test_the_golden_files_were_rendered_from_this_chart() -> None:
    """Says so where there is no Helm too."""
    said = rendering.DIGEST.read_text("ascii").strip()

    assert said == rendering.digest(), "the chart changed: make golden (needs helm)"


def test_there_is_a_golden_file_for_each_value_set_and_no_other() -> None:
    assert {path.stem for path in rendering.GOLDEN.glob("*.yaml")} == set(rendering.SETS)


@pytest.mark.parametrize("values", sorted(rendering.MANIFESTS))
def test_the_plain_manifests_are_the_rendered_chart(values: str) -> None:
    expected = rendering.manifest(values, rendering.golden(values).read_text("utf-8"))

    assert rendering.MANIFESTS[values].read_text("utf-8") == expected, "make golden writes it"
    assert "helm" not in expected.lower()


@pytest.mark.usefixtures("with_helm")
@pytest.mark.parametrize("version", rendering.KUBE_VERSIONS[:-1])
def test_every_supported_version_gets_the_same_objects(version: str) -> None:
    assert rendering.render("default", version) == rendering.golden("default").read_text("utf-8")
