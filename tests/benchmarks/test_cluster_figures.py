"""The cluster benchmark's arithmetic."""

from __future__ import annotations

import pytest

from benchmarks.cluster.figures import figures, p99_ms, quantile
from benchmarks.cluster.inventory import PER_NODE, RESOURCE, status
from benchmarks.cluster.rounds import Round
from sharing.api.node import GpuNodeStatus, node_inventory


def one(*, webhook: bool, bound_s: float) -> Round:
    cpu_s = {"kube-apiserver": 2.0, "webhook": 1.0 if webhook else 0.0}
    return Round(
        webhook=webhook, pods=100, created_s=bound_s / 2, bound_s=bound_s, cpu_s=cpu_s
    )  # fmt: skip


def test_the_ratio_is_the_median_over_pairs_whatever_their_order() -> None:
    rounds = [
        one(webhook=False, bound_s=10), one(webhook=True, bound_s=11),
        one(webhook=True, bound_s=30), one(webhook=False, bound_s=20),
        one(webhook=False, bound_s=10), one(webhook=True, bound_s=10.5),
    ]  # fmt: skip

    found = figures(rounds, 1.5, nodes=3)

    assert found["bind_ratio_on_off"] == 1.1
    assert found["cpu_ratio_on_off"] == 1.5
    assert found["cpu_ms_per_pod_on_kube_apiserver"] == 20.0
    assert found["cpu_ms_per_pod_on_webhook"] == 10.0
    assert found["cpu_ms_per_pod_off_webhook"] == 0.0
    assert (found["bind_ratio_on_off_min"], found["bind_ratio_on_off_max"]) == (1.05, 1.5)
    assert (found["bound_per_s"], found["bound_per_s_off"]) == (9.1, 10.0)
    assert (found["webhook_p99_ms"], found["nodes"]) == (1.5, 3)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 1.0), (0.75, 1.5), (0.25, 0.5), (0.9, 2.0), (1.0, 2.0)]
)
def test_a_quantile_is_interpolated_inside_its_bucket(share: float, expected: float) -> None:
    assert quantile({1.0: 50, 2.0: 90 + 10 * (share < 0.8), float("inf"): 100}, share) == (
        pytest.approx(expected, rel=0.3)
    )


def test_the_p99_is_read_from_the_webhooks_own_histogram() -> None:
    name = "gpu_sharing_webhook_review_duration_seconds"
    text = (
        f"# TYPE {name} histogram\n"
        f'{name}_bucket{{le="0.001"}} 98.0\n{name}_bucket{{le="0.002"}} 100.0\n'
        f'{name}_bucket{{le="+Inf"}} 100.0\n{name}_sum 0.1\n{name}_count 100.0\n'
    )

    assert p99_ms(text) == pytest.approx(1.5)


def test_a_node_of_the_fleet_offers_what_the_webhook_counts() -> None:
    read = GpuNodeStatus.model_validate(status(7))
    (offer,) = node_inventory("n", read, labels={}, ready=True).offers

    assert (offer.share_class.resource_name, offer.count) == (RESOURCE, PER_NODE)
