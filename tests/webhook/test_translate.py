"""Where another system's words end: what they do not mean, and what is not said of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.judging import container, judge, pod, profile, resources_of

GPU = "nvidia.com/gpu"


def moving(*systems: str, **spec: Any) -> Any:
    return profile(**{"mode": "mps", "compatibility": list(systems), **spec})


@pytest.mark.parametrize(
    ("system", "amount"), [("volcano", "volcano.sh/vgpu-memory"), ("aliyun", "aliyun.com/gpu-mem")]
)
def test_a_plain_gpu_is_part_of_hami_s_request_and_of_no_other(system: str, amount: str) -> None:
    asks = pod(container(limits={GPU: "1", amount: "4"}))
    verdict, _ = judge(asks, moving(system))
    assert verdict.code == 422
    assert f"{GPU}: 1 stands beside {amount}: 4" in verdict.message
    hami = pod(container(limits={GPU: "1", "nvidia.com/gpumem": "3000"}))
    assert judge(hami, moving("hami"))[0].grants[0].request == (
        "nvidia.com/gpu: 1 with nvidia.com/gpumem: 3000"
    )


@pytest.mark.parametrize("name", ["nvidia.com/gpumem-percentage", "nvidia.com/gpucores"])
def test_a_hundred_hundredths_are_a_whole_gpu_and_more_mean_nothing(name: str) -> None:
    """HAMi PR#2789."""
    policy = moving("hami", mode="exclusive")
    _, after = judge(pod(container(limits={GPU: "1", name: "100"})), policy)
    assert resources_of(after) == {GPU: "1"}
    verdict, _ = judge(pod(container(limits={GPU: "1", name: "101"})), policy)
    assert verdict.code == 422
    assert "more than 100 hundredths" in verdict.message


def test_only_what_a_system_of_the_profile_says_is_not_carried_over() -> None:
    asks = pod(container(limits={"nvidia.com/gpu-10gb": "1"}))
    asks["metadata"]["labels"] = {"kai.scheduler/queue": "a"}
    for systems in (["nos"], ["nos", "aliyun"]):
        said = judge(asks, moving(*systems))[0].warnings
        assert not any("queue" in one for one in said)
    assert any("queue" in one for one in judge(asks, moving("nos", "kai"))[0].warnings)


def test_a_count_is_spoken_of_where_another_system_counted_devices() -> None:
    def counts(limits: dict[str, str], **annotations: str) -> list[str]:
        asks = pod(container(limits=limits), annotations=annotations)
        said = judge(asks, moving("hami"))[0].warnings
        return [one for one in said if "a count of" in one]

    assert counts({GPU: "1", "nvidia.com/gpumem-percentage": "25"}) == []
    assert counts({GPU: "2", "nvidia.com/gpumem-percentage": "25"}) == [
        "a count of 2 is not carried over: a container gets one share as large"
    ]
    assert counts({GPU: "2"}, **{"gpu.sharing/fraction": "0.25"}) == []


def test_two_requests_of_one_system_are_both_named_and_one_is_shown() -> None:
    asks = pod(container(limits={"nvidia.com/gpu-5gb": "1", "nvidia.com/gpu-10gb": "1"}))
    verdict, _ = judge(asks, moving("nos"))
    assert "limits[nvidia.com/gpu-10gb]" in verdict.message
    assert "nvidia.com/gpu-10gb: 1 stands beside nvidia.com/gpu-5gb: 1;" in verdict.message
    assert verdict.message.endswith("for example: nvidia.com/gpu-5gb: 1")


def test_a_slice_of_nos_is_no_size_of_a_plain_gpu() -> None:
    verdict, _ = judge(pod(container(limits={GPU: "1", "nvidia.com/gpu-10gb": "1"})), moving("nos"))
    assert verdict.code == 422
    assert "stands beside" in verdict.message


@pytest.mark.parametrize(
    ("system", "name", "amount", "more_than"),
    [
        ("aliyun", "aliyun.com/gpu-mem", "4", "4095"),
        ("volcano", "volcano.sh/vgpu-memory", "4000", "3999"),
    ],
)
def test_memory_alone_is_one_share_beside_zero_gpus_too(
    system: str, name: str, amount: str, more_than: str
) -> None:
    for limits in ({name: amount}, {GPU: "0", name: amount}):
        _, after = judge(pod(container(limits=limits)), moving(system))
        assert resources_of(after) == {"gpu.sharing/mps-1of8": "1"}
        assert f"'values': ['{more_than}']" in str(after["spec"]["affinity"])


@pytest.mark.parametrize(
    ("system", "name"),
    [("aliyun", "aliyun.com/gpu-count"), ("volcano", "volcano.sh/vgpu-number")],
)
def test_a_count_of_devices_alone_is_a_plain_request(system: str, name: str) -> None:
    _, after = judge(pod(container(limits={name: "1"})), moving(system, wholeGPU="keep"))
    assert resources_of(after) == {GPU: "1"}


def test_the_size_is_blamed_and_not_the_count() -> None:
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "90000"}
    verdict, _ = judge(pod(container(limits=limits)), moving("volcano"))
    assert verdict.code == 403
    assert "limits[volcano.sh/vgpu-memory]" in verdict.message


def test_what_another_system_asks_for_nothing_of_is_not_lost() -> None:
    limits = {GPU: "1", "nvidia.com/gpumem": "0", "nvidia.com/priority": "1"}
    asks = pod(container(limits=limits), annotations={"gpu.sharing/fraction": "0.25"})
    said = judge(asks, moving("hami"))[0].warnings
    assert not any("gpumem" in one for one in said)
    assert sum("nvidia.com/priority" in one for one in said) == 1
