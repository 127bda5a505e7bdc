"""Each form of request in each mode: what it becomes, or why it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.judging import container, judge, pod, resources_of

FORMS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "plain": ({"nvidia.com/gpu": "1"}, {}),
    "fraction": ({}, {"gpu.sharing/fraction": "0.25"}),
    "fraction of a named GPU": ({"nvidia.com/gpu": "1"}, {"gpu.sharing/fraction": "1/4"}),
    "percent": ({}, {"gpu.sharing/fraction": "25%"}),
    "milli quantity": ({"nvidia.com/gpu": "250m"}, {}),
    "decimal quantity": ({"nvidia.com/gpu": 0.25}, {}),
    "fraction rounded up": ({}, {"gpu.sharing/fraction": "0.3"}),
    "memory": ({}, {"gpu.sharing/memory": "15Gi"}),
    "for one container": ({}, {"main.gpu.sharing/fraction": "0.5"}),
    "one mebibyte more than a quarter": ({}, {"gpu.sharing/memory": "20390Mi"}),
}
BECOMES = {
    "plain": ("gpu.sharing/mps-1of4", "gpu.sharing/timeslice-1of4", "nvidia.com/mig-2g.20gb"),
    "fraction": ("gpu.sharing/mps-1of4", "gpu.sharing/timeslice-1of4", "nvidia.com/mig-2g.20gb"),
    "fraction rounded up": (
        "gpu.sharing/mps-1of2",
        "gpu.sharing/timeslice-1of2",
        "nvidia.com/mig-3g.40gb",
    ),
    "memory": ("gpu.sharing/mps-1of4", "gpu.sharing/timeslice-1of4", "nvidia.com/mig-2g.20gb"),
    "for one container": (
        "gpu.sharing/mps-1of2",
        "gpu.sharing/timeslice-1of2",
        "nvidia.com/mig-3g.40gb",
    ),
    "one mebibyte more than a quarter": (
        "gpu.sharing/mps-1of2",
        "gpu.sharing/timeslice-1of2",
        "nvidia.com/mig-3g.40gb",
    ),
}
for form in ("fraction of a named GPU", "percent", "milli quantity", "decimal quantity"):
    BECOMES[form] = BECOMES["fraction"]
MODES = ("mps", "time-slicing", "mig")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", [*MODES, "exclusive"])
def test_a_request_of_any_form_becomes_a_share_of_the_mode(form: str, mode: str) -> None:
    limits, annotations = FORMS[form]
    manifest = pod(container(limits={"cpu": "1", **limits}), annotations=annotations)
    verdict, after = judge(manifest, mode)
    expected = "nvidia.com/gpu" if mode == "exclusive" else BECOMES[form][MODES.index(mode)]
    assert verdict.allowed, verdict.message
    assert resources_of(after) == {expected: "1"}
    assert [(g.container, g.resource, g.count) for g in verdict.grants] == [("main", expected, 1)]


SHARES = {
    "mps": "gpu.sharing/mps-1of4",
    "time-slicing": "gpu.sharing/timeslice-1of4",
    "mig": "nvidia.com/mig-1g.10gb",
    "exclusive": "nvidia.com/gpu",
}


@pytest.mark.parametrize("mode", SHARES)
@pytest.mark.parametrize("asked", SHARES)
def test_a_share_by_name_is_given_where_its_mode_is_allowed(mode: str, asked: str) -> None:
    name = SHARES[asked]
    verdict, after = judge(pod(container(limits={name: 1})), mode)
    if asked == mode:
        assert resources_of(after) == {name: "1"}
    elif asked == "exclusive":
        # A plain GPU is no name of a share: the policy says what it becomes.
        assert name not in resources_of(after)
    else:
        assert verdict.code == 403
        assert f"does not allow mode {asked}" in verdict.message


@pytest.mark.parametrize("mode", SHARES)
def test_a_mig_profile_is_given_under_mig_only(mode: str) -> None:
    manifest = pod(container(), annotations={"gpu.sharing/mig-profile": "1g.10gb"})
    verdict, after = judge(manifest, mode)
    if mode == "mig":
        assert resources_of(after) == {"nvidia.com/mig-1g.10gb": "1"}
    else:
        assert verdict.code == 403
        assert "does not allow mode mig" in verdict.message


@pytest.mark.parametrize("mode", SHARES)
@pytest.mark.parametrize("place", ["app", "init", "sidecar"])
def test_init_containers_and_sidecars_are_served_like_apps(mode: str, place: str) -> None:
    """HAMi#2167, HAMi#2558, KAI PR#1556: a GPU that only an init container asks for."""
    asking = container("asks", limits={"nvidia.com/gpu": 1})
    if place == "sidecar":
        asking["restartPolicy"] = "Always"
    manifest = pod(asking) if place == "app" else pod(container(), init=[asking])
    verdict, after = judge(manifest, mode)
    assert [grant.container for grant in verdict.grants] == ["asks"]
    (given,) = resources_of(after, "asks")
    assert given == verdict.grants[0].resource
    if place != "app":
        assert "resources" not in after["spec"]["containers"][0]


@pytest.mark.parametrize("mode", MODES)
def test_a_share_is_never_smaller_than_what_was_asked(mode: str) -> None:
    for percent in range(1, 51):
        manifest = pod(container(), annotations={"gpu.sharing/fraction": f"{percent}%"})
        verdict, _ = judge(manifest, mode)
        size = verdict.grants[0].resource.rpartition("-")[2]
        parts = {"1g.10gb": 8, "2g.20gb": 4, "3g.40gb": 2}.get(size) or int(size[3:])
        assert percent * parts <= 100


def test_rounding_up_is_told() -> None:
    verdict, _ = judge(pod(container(), annotations={"gpu.sharing/fraction": "0.3"}), "mps")
    (warning,) = verdict.warnings
    assert "gpu.sharing/fraction: 0.3 -> gpu.sharing/mps-1of2" in warning
    assert "rounded up to 1of2" in warning


def test_memory_asks_reach_only_nodes_where_the_share_suffices() -> None:
    manifest = pod(container(), annotations={"gpu.sharing/memory": "15Gi"})
    _, after = judge(manifest, "mps")
    required = after["spec"]["affinity"]["nodeAffinity"]
    (term,) = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "gpu.sharing/mps-1of4.memory-mib", "operator": "Gt", "values": ["15359"]}
    ]


def test_memory_requirements_join_every_term_that_the_author_wrote() -> None:
    mine = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = [
        {"matchExpressions": [mine]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    manifest = pod(
        container(),
        annotations={"gpu.sharing/memory": "15Gi"},
        affinity={"nodeAffinity": required, "podAffinity": {"odd": True}},
    )
    _, after = judge(manifest, "mps")
    affinity = after["spec"]["affinity"]
    (first, second, empty) = affinity["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert first["matchExpressions"][0] == mine
    assert len(first["matchExpressions"]) == 2
    assert len(second["matchExpressions"]) == 1
    assert empty == {}, "an empty term matches no node, and must stay so"
    assert affinity["podAffinity"] == {"odd": True}
