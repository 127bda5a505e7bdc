"""KAI Scheduler's annotations: what is said when they contradict themselves or each other."""

from __future__ import annotations

import pytest

from tests.support.judging import container, judge, pod, profile, resources_of

MOVING = profile(mode="mps", compatibility=["kai"])
REQUEST = "nvidia.cdi.k8s.io/main.gpu-memory.request"


def test_several_devices_are_named_in_what_was_asked() -> None:
    """KAI: gpu-fraction-num-devices."""
    annotations = {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}
    verdict, after = judge(pod(container(), annotations=annotations), MOVING)
    assert verdict.grants[0].request == "gpu-fraction-num-devices: 2 with gpu-fraction: 0.25"
    assert resources_of(after) == {"gpu.sharing/mps-1of2": "1"}
    one = {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "1"}
    verdict, _ = judge(pod(container(), annotations=one), MOVING)
    assert verdict.grants[0].request == "gpu-fraction: 0.25"


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({REQUEST: "10Gi"}, f"nvidia.com/gpu: 1 stands beside {REQUEST}: 10Gi"),
        ({"gpu-fraction": "0.5"}, "nvidia.com/gpu: 1 stands beside gpu-fraction: 0.5"),
        (
            {"gpu-fraction": "0.5", "gpu-memory": "2000"},
            "metadata.annotations[gpu-memory]: it stands beside gpu-fraction",
        ),
        (
            {"gpu-fraction": "0.5", "gpu-fraction-container-name": "server"},
            "the pod has no container 'server'; expected one of its containers: main, b",
        ),
        (
            {"nvidia.cdi.k8s.io/server.gpu-memory.request": "10Gi"},
            "the pod has no container 'server'; expected one of its containers: main, b",
        ),
    ],
)
def test_two_asks_for_one_container_and_none_for_another_are_refused(
    annotations: dict[str, str], words: str
) -> None:
    main = container(limits={"nvidia.com/gpu": "1"})
    verdict, _ = judge(pod(main, container("b"), annotations=annotations), MOVING)
    assert verdict.code == 422
    assert words in verdict.message


def test_a_pod_s_share_stays_with_its_container_when_another_is_put_before_it() -> None:
    policy = profile(mode="mps", compatibility=["kai"])
    _, after = judge(pod(container("main"), annotations={"gpu-fraction": "0.5"}), policy)
    after["spec"]["containers"].insert(0, container("proxy"))
    verdict, moved = judge(after, policy)
    assert [grant.container for grant in verdict.grants] == ["main"]
    assert resources_of(moved, "proxy") == {}


def test_a_pod_s_share_stays_with_its_container_behind_one_that_asks_by_itself() -> None:
    policy = profile(mode="mps", compatibility=["kai"])
    asks = pod(
        container("main"),
        container("own", limits={"nvidia.com/gpu": "1"}),
        annotations={"gpu-fraction": "0.5"},
    )
    _, after = judge(asks, policy)
    after["spec"]["containers"].reverse()
    verdict, moved = judge(after, policy)
    assert verdict.allowed, verdict.message
    assert resources_of(moved, "main") == {"gpu.sharing/mps-1of2": "1"}
    assert resources_of(moved, "own") == {"gpu.sharing/mps-1of4": "1"}
