"""What a pod needs in all, by the rules of KEP-753 and KEP-2837."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.scheduler.demand import demand_of, requests_of, scored_demand_of
from sharing.errors import QuantityError

GPU = "nvidia.com/gpu"


def container(cpu: str | None = None, gpu: int | None = None, **more: Any) -> dict[str, Any]:
    requests: dict[str, Any] = {} if cpu is None else {"cpu": cpu}
    if gpu is not None:
        requests[GPU] = gpu
    return {"resources": {"requests": requests}, **more}


def sidecar(cpu: str | None = None, gpu: int | None = None) -> dict[str, Any]:
    return container(cpu, gpu, restartPolicy="Always")


@pytest.mark.parametrize(
    ("init", "apps", "expected"),
    [
        ([], [container("1", 1), container("500m")], {"cpu": 1500, GPU: 1}),
        ([container("3", 1)], [container("1", 1)], {"cpu": 3000, GPU: 1}),
        ([container(gpu=2), container(gpu=1)], [container(gpu=1)], {GPU: 2}),
        ([sidecar("1", 1)], [container("1", 1)], {"cpu": 2000, GPU: 2}),
        ([sidecar("1"), container("3")], [container("1")], {"cpu": 4000}),
        ([container("3"), sidecar("1")], [container("1")], {"cpu": 3000}),
        ([sidecar("1"), sidecar("1"), container("1")], [], {"cpu": 3000}),
    ],
)
def test_init_containers_count_by_peak_and_sidecars_beside_the_rest(
    init: list[dict[str, Any]], apps: list[dict[str, Any]], expected: dict[str, int]
) -> None:
    assert demand_of({"initContainers": init, "containers": apps}) == expected


def test_overhead_is_added_and_pod_level_requests_stand_for_cpu_and_memory() -> None:
    spec = {
        "containers": [container("1", 1), container("1", 1)],
        "resources": {"requests": {"cpu": "5", GPU: 9}},
        "overhead": {"cpu": "100m", "memory": "1Ki"},
    }
    assert demand_of(spec) == {"cpu": 5100, GPU: 2, "memory": 1024}


def test_a_limit_without_a_request_is_a_request() -> None:
    resources = {"limits": {GPU: "1", "cpu": "2"}, "requests": {"cpu": "1"}}
    assert requests_of({"resources": resources}) == {GPU: 1, "cpu": 1000}


def test_nulls_ask_for_nothing() -> None:
    spec = {"containers": [{"resources": None}, {"resources": {"limits": None}}], "overhead": None}
    assert demand_of(spec | {"initContainers": None}) == {}


def test_scores_count_a_container_that_asks_for_nothing_as_a_small_one() -> None:
    assert scored_demand_of({"containers": [{}, container("1")]}) == {
        "cpu": 1100,
        "memory": 400 * 1024 * 1024,
    }


def test_a_quantity_that_is_none_is_an_error() -> None:
    with pytest.raises(QuantityError):
        demand_of({"containers": [container("one")]})
