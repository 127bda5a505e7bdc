"""The scenario file: what is read, and what is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.trial import scenario
from sharing.errors import InputError

POD = "{metadata: {name: a, namespace: b}, spec: {containers: []}}"
NODE = "nodes: [{name: n, gpus: 1xT4-16GB}]"


def test_the_built_in_scenario_covers_every_form_and_refusal() -> None:
    built_in = scenario.load(None)

    verdicts = {pod.expect.verdict for pod in built_in.pods}
    granted = {name for pod in built_in.pods for name in (pod.expect.containers or {}).values()}
    assert verdicts >= {"allow", "patch", "deny"}
    assert granted >= {
        "nvidia.com/gpu", "gpu.sharing/mps-1of4", "gpu.sharing/timeslice-1of4",
        "nvidia.com/mig-1g.10gb",
    }  # fmt: skip
    assert {pod.expect.code for pod in built_in.pods} >= {403, 422}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[", "is no YAML"),
        ("- a", "is no mapping"),
        ("pods: []", "field nodes is missing; add it"),
        ("nodes: []", "field nodes is"),
        ("nodes: [{name: N, gpus: 1xT4-16GB}]", r"field nodes\[0\].name is 'N'"),
        (f"{NODE}\nextra: 1", "unknown field extra"),
        (f"{NODE}\npods: [{{about: x}}]", r"field pods\[0\].manifest is missing"),
        (f"{NODE}\npods: [{{about: x, manifest: {{}}}}]", r"has no metadata.name"),
        (f"{NODE}\npods: [{{about: x, manifest: {{metadata: 3}}}}]", r"has no metadata.name"),
        (
            f"{NODE}\npods: [{{about: x, manifest: {POD}}}, {{about: y, manifest: {POD}}}]",
            "pods names 'b/a' twice; rename one",
        ),
        (f"{NODE}\nobjects: [{{kind: Pod}}]", r"objects\[0\] has no apiVersion and kind"),
        (
            f"{NODE}\npods: [{{about: x, manifest: {POD}, expect: {{verdict: maybe}}}}]",
            r"pods\[0\].expect.verdict is 'maybe'",
        ),
        ("a: &a [1]\nnodes: *b", "is no YAML"),
    ],
)
def test_a_malformed_scenario_is_one_clear_sentence(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as raised:
        scenario.parse(text, "scenario x.yaml")
    assert str(raised.value).startswith("scenario x.yaml: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"x" * ((1 << 20) + 1)])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "s.yaml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(InputError, match=r"scenario .*s\.yaml: "):
        scenario.load(path)
