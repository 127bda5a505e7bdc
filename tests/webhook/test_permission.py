"""What a profile lets a container ask for, before any node is looked at."""

from __future__ import annotations

import json

import pytest

from tests.support.judging import container, inventory, judge, pod, profile, resources_of

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("whole_gpu", "mode", "allowed"),
    [
        ("keep", "exclusive", True),
        ("keep", "time-slicing", False),
        ("keep", "mig", False),
        ("convert", "exclusive", False),
        ("deny", "exclusive", False),
    ],
)
def test_whole_gpus_that_are_kept_may_be_asked_for_by_mode_and_nothing_else_may(
    whole_gpu: str, mode: str, allowed: bool
) -> None:
    asks = pod(container(limits={GPU: "1"}), annotations={"gpu.sharing/mode": mode})
    verdict, after = judge(asks, profile(mode="mps", wholeGPU=whole_gpu))
    assert verdict.allowed is allowed
    assert (resources_of(after) == {GPU: "1"}) or not allowed
    assert allowed or "expected" in verdict.message


@pytest.mark.parametrize(
    ("mode", "share"),
    [("mig", "nvidia.com/mig-2g.20gb"), ("mps", "gpu.sharing/mig-2g.20gb.mps-1of2")],
)
def test_a_share_by_name_has_to_be_of_a_listed_mig_profile(mode: str, share: str) -> None:
    asks = pod(container(limits={share: "1"}))
    verdict, _ = judge(asks, profile(mode=mode, migProfiles=["1g.10gb", "3g.40gb"]))
    assert verdict.code == 403
    assert "expected one of 1g.10gb, 3g.40gb" in verdict.message
    assert "migProfiles" in verdict.message


@pytest.mark.parametrize(
    ("mode", "share"),
    [
        ("mig", "nvidia.com/mig-1g.10gb"),
        ("mps", "gpu.sharing/mps-1of2"),
        ("mps", "gpu.sharing/mig-1g.10gb.mps-1of2"),
    ],
)
def test_a_share_by_name_of_a_listed_mig_profile_or_of_none_is_given(mode: str, share: str) -> None:
    policy = profile(mode=mode, migProfiles=["1g.10gb", "3g.40gb"])
    verdict, _ = judge(pod(container(limits={share: "1"})), policy, inventory((share, 4992, 71)))
    assert [grant.resource for grant in verdict.grants] == [share]


@pytest.mark.parametrize("scheduler", ["gang", "kai-scheduler"])
def test_a_pod_that_says_what_its_profile_says_is_told_nothing(scheduler: str) -> None:
    policy = profile(
        mode="mps",
        nodeSelector={"pool": "a"},
        schedulerName=scheduler,
        compatibility=["kai"],
        onUnsatisfiable="admit",
    )
    asks = pod(container(limits={GPU: "1"}), nodeSelector={"pool": "a"}, schedulerName=scheduler)
    # As it comes over the wire: equal texts are not one text.
    verdict, _ = judge(json.loads(json.dumps(asks)), policy)
    assert verdict.allowed
    assert not any("pool" in one or scheduler in one for one in verdict.warnings)
