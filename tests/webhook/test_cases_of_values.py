"""Reports about values that others read wrongly, and about what admission must not leave behind."""

from __future__ import annotations

import pytest

from tests.support.judging import container, inventory, judge, pod, resources_of

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    "fraction", ["150%", "12.5.0%", "1.5", "-25%", "25 %", "abc", "2/1", "0.25%%"]
)
def test_a_percentage_that_is_none_is_never_read_as_no_request(fraction: str) -> None:
    """HAMi PR#2789: it became "no GPU", the pod was bound without one and failed later."""
    manifest = pod(container("train"), annotations={"gpu.sharing/fraction": fraction})
    verdict, after = judge(manifest, "mps")
    assert verdict.code == 422
    assert after == manifest
    for part in ("gpu.sharing/fraction", fraction, "for example"):
        assert part in verdict.message


def test_an_amount_is_rounded_up_once_and_never_past_the_card() -> None:
    """KAI's HAMi guide: 4096 of 15360 MiB became a two-decimal fraction and 4147 MiB."""
    nodes = inventory(
        ("gpu.sharing/mps-1of2", 15360 // 2, 500), ("gpu.sharing/mps-1of4", 15360 // 4, 250)
    )
    manifest = pod(container(), annotations={"gpu.sharing/memory": "4096Mi"})
    assert resources_of(judge(manifest, "mps", nodes)[1]) == {"gpu.sharing/mps-1of2": "1"}
    manifest = pod(container(), annotations={"gpu.sharing/memory": "3840Mi"})
    assert resources_of(judge(manifest, "mps", nodes)[1]) == {"gpu.sharing/mps-1of4": "1"}


def test_a_count_without_a_size_is_the_namespaces_default_and_is_written_down() -> None:
    """HAMi#2744, NVIDIA/OpenShell#1065: it was silently the whole card."""
    verdict, after = judge(pod(container(limits={GPU: 1})), "mps")
    assert resources_of(after) == {"gpu.sharing/mps-1of4": "1"}
    assert "mps-1of4" in after["metadata"]["annotations"]["status.gpu.sharing/grants"]
    assert verdict.warnings


def test_admission_leaves_no_finalizer_that_would_need_somebody_to_take_it_off() -> None:
    """openshift/instaslice-operator#87, #94, #122: pods that were never admitted got stuck."""
    for manifest in (pod(container(limits={GPU: 1})), pod(container())):
        assert "finalizers" not in judge(manifest, "mps")[1]["metadata"]
