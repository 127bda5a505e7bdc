"""Reports from other projects that the tables of the other modules do not hold."""

from __future__ import annotations

import pytest

from tests.support.judging import H100S, container, inventory, judge, pod, profile, resources_of
from webhook.admission import admit
from webhook.policies import Policies
from webhook.review import Review

GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("16Gi", "gpu.sharing/mps-1of4"),
        ("17179869184", "gpu.sharing/mps-1of4"),
        ("16e9", "gpu.sharing/mps-1of4"),
        ("4096Mi", "gpu.sharing/mps-1of8"),
        ("4294967296001m", "gpu.sharing/mps-1of8"),
    ],
)
def test_memory_is_read_with_its_unit(text: str, resource: str) -> None:
    """HAMi#2718, HAMi#2284: 16Gi where MiB integers are expected wraps to 0."""
    manifest = pod(container(), annotations={"gpu.sharing/memory": text})
    assert resources_of(judge(manifest, "mps")[1]) == {resource: "1"}


@pytest.mark.parametrize("text", ["9Ei", "8Ei", "1000000Ti", "81Gi"])
def test_more_memory_than_any_gpu_is_refused_not_wrapped(text: str) -> None:
    manifest = pod(container(), annotations={"gpu.sharing/memory": text})
    assert judge(manifest, "mps")[0].code in (403, 422)


def test_memory_stays_in_the_unit_that_was_asked() -> None:
    """KAI: 4096 MiB of 15360 became a two-decimal fraction, and 4147 MiB were enforced."""
    nodes = inventory(("gpu.sharing/mps-1of4", 3840, 250), ("gpu.sharing/mps-1of2", 7680, 500))
    for mib, size in ((3840, "1of4"), (3841, "1of2"), (4096, "1of2")):
        manifest = pod(container(), annotations={"gpu.sharing/memory": f"{mib}Mi"})
        assert resources_of(judge(manifest, "mps", nodes)[1]) == {f"gpu.sharing/mps-{size}": "1"}


def test_errors_of_the_author_carry_a_code_that_clients_do_not_retry() -> None:
    """HAMi: percentage 150 reported as HTTP 500."""
    manifest = pod(container(), annotations={"gpu.sharing/fraction": "150%"})
    assert judge(manifest, "mps")[0].code == 422


def test_the_default_scheduler_is_no_choice() -> None:
    """HAMi#1162, HAMi PR#1164, F4: the API server fills it in."""
    manifest = pod(container(limits={GPU: 1}), schedulerName="default-scheduler")
    _, after = judge(manifest, profile(mode="mps", schedulerName="gang"))
    assert after["spec"]["schedulerName"] == "gang"
    assert resources_of(after) == {"gpu.sharing/mps-1of4": "1"}


def test_no_runtime_class_is_invented() -> None:
    """KAI#1543: set to an empty string, and over the author's."""
    _, after = judge(pod(container(limits={GPU: 1})), "mps")
    assert "runtimeClassName" not in after["spec"]


def test_a_pod_without_a_share_is_not_placed() -> None:
    policy = profile(mode="mps", runtimeClassName="nvidia", nodeSelector={"a": "b"}, hideGPUs=True)
    _, after = judge(pod(container()), policy)
    assert set(after["spec"]) == {"containers"}


def test_labels_of_the_pod_open_nothing() -> None:
    """HAMi#3041, HAMi#3076: the opt-out label of a tenant."""
    manifest = pod(container(limits={GPU: 1}))
    manifest["metadata"]["labels"] = {"gpu.sharing/mode": "none", "hami.io/webhook": "ignore"}
    assert resources_of(judge(manifest, "mps")[1]) == {"gpu.sharing/mps-1of4": "1"}


def test_the_patch_brings_no_volume_container_or_priority() -> None:
    """DataDog/helm-charts#1480, bank-vaults#515, kubernetes#102724: E7."""
    policy = profile(mode="mps", hideGPUs=True, accounting=True)
    manifest = pod(
        container(limits={GPU: 1}), container("b"), annotations={"gpu.sharing/memory": "1Gi"}
    )
    verdict, after = judge(manifest, policy)
    assert {"volumes", "priority", "priorityClassName"}.isdisjoint(after["spec"])
    assert len(after["spec"]["containers"]) == 2
    assert not any("volumeMounts" in operation.path for operation in verdict.operations)


def test_a_priority_class_beside_a_share_stays() -> None:
    """kubernetes#102724, koordinator#1968."""
    manifest = pod(container(limits={GPU: 1}), priorityClassName="high", priority=1000)
    _, after = judge(manifest, "mps")
    assert (after["spec"]["priorityClassName"], after["spec"]["priority"]) == ("high", 1000)


def test_a_dry_run_is_answered_like_any_other() -> None:
    """TensorFusion wrote a workload object at dry run; here nothing is ever written."""
    manifest = pod(container(limits={GPU: 1}))
    known = Policies(namespaces={"ns": {"gpu.sharing/mode": "mps"}})
    one, other = (
        Review(
            uid="u", operation="CREATE", kind="Pod", namespace="ns", object=manifest, dry_run=dry
        )
        for dry in (False, True)
    )
    assert admit(one, known, H100S) == admit(other, known, H100S)


def test_isolation_can_be_demanded() -> None:
    """k8s-device-plugin#569, KAI#262, HAMi#1112: time-slicing believed to limit memory."""
    policy = profile(modes=["time-slicing", "mps", "mig"], minIsolation="hardware")
    _, after = judge(pod(container(limits={GPU: 1})), policy)
    assert resources_of(after) == {"nvidia.com/mig-2g.20gb": "1"}


def test_only_a_limit_that_changes_is_enough_for_a_patch() -> None:
    """attune#719, B10."""
    verdict, _ = judge(pod(container(limits={GPU: "1"})), profile(mode="mps", accounting=True))
    assert verdict.kind == "patch"


def test_what_was_asked_and_given_is_on_the_pod_and_in_a_warning() -> None:
    """kubernetes/autoscaler#8401: operators cannot find why resources differ."""
    verdict, after = judge(pod(container(limits={GPU: "300m"})), "mps")
    record = after["metadata"]["annotations"]["status.gpu.sharing/grants"]
    for text in (record, verdict.warnings[0]):
        assert "nvidia.com/gpu: 300m" in text
        assert "gpu.sharing/mps-1of2" in text
        assert "rounded up to 1of2" in text
