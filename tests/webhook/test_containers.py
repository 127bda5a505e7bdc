"""Which container a request is for, and what happens to several of them."""

from __future__ import annotations

import pytest

from tests.support.judging import container, judge, pod, profile, resources_of

GPU = "nvidia.com/gpu"


def test_a_pod_key_goes_to_the_containers_that_ask() -> None:
    manifest = pod(
        container("app", limits={GPU: 1}),
        container("log"),
        init=[container("load", limits={GPU: 1})],
        annotations={"gpu.sharing/fraction": "0.5"},
    )
    verdict, after = judge(manifest, "mps")
    assert [grant.container for grant in verdict.grants] == ["app", "load"]
    assert (
        resources_of(after, "app") == resources_of(after, "load") == {"gpu.sharing/mps-1of2": "1"}
    )
    assert resources_of(after, "log") == {}


def test_a_pod_key_goes_to_the_only_app_container_if_nobody_asks() -> None:
    manifest = pod(
        container("app"), init=[container("setup")], annotations={"gpu.sharing/fraction": "0.5"}
    )
    verdict, _ = judge(manifest, "mps")
    assert [grant.container for grant in verdict.grants] == ["app"]


def test_a_pod_key_that_could_mean_several_containers_is_refused_with_the_way_out() -> None:
    manifest = pod(container("web"), container("app"), annotations={"gpu.sharing/fraction": "0.5"})
    verdict, _ = judge(manifest, "mps")
    assert verdict.code == 422
    assert "several containers (web, app), and none asks for a GPU" in verdict.message
    assert 'for example: app.gpu.sharing/fraction: "0.5"' in verdict.message


def test_containers_can_have_different_shares() -> None:
    """k8s-device-plugin#1690: two containers of a pod that each want a share."""
    manifest = pod(
        container("a"),
        container("b", limits={GPU: "125m"}),
        container("c", limits={GPU: 1}),
        annotations={
            "a.gpu.sharing/fraction": "0.5",
            "c.gpu.sharing/memory": "15Gi",
            "c.gpu.sharing/mode": "time-slicing",
        },
    )
    _, after = judge(manifest, profile(mode="mps", allowedModes=["mps", "time-slicing"]))
    assert resources_of(after, "a") == {"gpu.sharing/mps-1of2": "1"}
    assert resources_of(after, "b") == {"gpu.sharing/mps-1of8": "1"}
    assert resources_of(after, "c") == {"gpu.sharing/timeslice-1of4": "1"}


def test_a_container_s_own_key_outranks_the_pod_s() -> None:
    manifest = pod(
        container("a", limits={GPU: 1}),
        container("b", limits={GPU: 1}),
        annotations={"gpu.sharing/fraction": "0.5", "b.gpu.sharing/fraction": "0.25"},
    )
    _, after = judge(manifest, "mps")
    assert resources_of(after, "a") == {"gpu.sharing/mps-1of2": "1"}
    assert resources_of(after, "b") == {"gpu.sharing/mps-1of4": "1"}


def test_requests_only_is_meant_for_limits_too() -> None:
    """HAMi#2532, E6: an extended resource only in requests is refused by the API server."""
    _, after = judge(pod(container(requests={"cpu": "1", GPU: 1})), "mps")
    assert after["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "1", "gpu.sharing/mps-1of4": "1"},
        "limits": {"gpu.sharing/mps-1of4": "1"},
    }


def test_requests_that_name_no_gpu_stay_as_they_are() -> None:
    _, after = judge(pod(container(limits={GPU: "1"}, requests={"cpu": "1"})), "mps")
    assert after["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}


def test_limits_and_requests_are_rewritten_alike() -> None:
    both = {"cpu": "1", GPU: "1"}
    _, after = judge(pod(container(limits=both, requests=dict(both))), "mps")
    resources = after["spec"]["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"] == {"cpu": "1", "gpu.sharing/mps-1of4": "1"}


@pytest.mark.parametrize("zero", [0, "0", "0m", 0.0])
def test_zero_asks_for_nothing(zero: object) -> None:
    """HAMi#2739."""
    verdict, after = judge(pod(container(limits={GPU: zero})), "mps")
    assert verdict.kind == "allow"
    manifest = pod(container(limits={GPU: zero}), annotations={"gpu.sharing/fraction": "0.5"})
    _, after = judge(manifest, "mps")
    assert resources_of(after) == {"gpu.sharing/mps-1of2": "1"}


def test_names_that_are_not_ours_are_left_alone() -> None:
    """Instaslice renamed nvidia.com/gpu.shared to a resource that nobody advertises."""
    limits = {"nvidia.com/gpu.shared": 1, "amd.com/gpu": 1, "notgpu.sharing/x": 1}
    keys = {"notgpu.sharing/fraction": "junk", "gpu.sharing.example.com/fraction": "junk"}
    verdict, _after = judge(pod(container(limits=limits), annotations=keys), "mps")
    assert verdict.kind == "allow"


def test_a_pod_without_a_gpu_gets_an_empty_answer() -> None:
    """HAMi's utilization policy wrote a variable into every container of the cluster."""
    manifest = pod(
        container(limits={"cpu": "1"}, env=[{"name": "A", "value": "b"}]), container("b")
    )
    verdict, _ = judge(manifest, "mps")
    assert verdict.kind == "allow"
    assert not verdict.warnings
    assert not verdict.audit_annotations


def test_a_mode_without_a_gpu_is_told_to_change_nothing() -> None:
    verdict, _ = judge(pod(container(), annotations={"gpu.sharing/mode": "mps"}), "mps")
    assert verdict.kind == "allow"
    assert "gpu.sharing/mode changes nothing" in verdict.warnings[0]


def test_a_container_called_status_cannot_have_keys_of_its_own() -> None:
    manifest = pod(container("status"), annotations={"status.gpu.sharing/fraction": "0.5"})
    verdict, _ = judge(manifest, "mps")
    assert verdict.code == 422
    assert "rename the container" in verdict.message


def test_grants_go_by_name_when_containers_move() -> None:
    """HAMi#654, F6: a sidecar put in front of the GPU container by another webhook."""
    manifest = pod(container("main"), annotations={"gpu.sharing/fraction": "0.25"})
    _, after = judge(manifest, "mps")
    after["spec"]["containers"].insert(0, container("proxy"))
    after["spec"]["initContainers"] = [container("proxy-init")]
    verdict, moved = judge(after, "mps")
    assert verdict.kind == "allow", "nothing is left to do"
    assert [grant.container for grant in verdict.grants] == ["main"]
    assert resources_of(moved, "proxy") == {}


def test_a_container_that_another_webhook_added_is_processed_alone() -> None:
    """amazon-eks-pod-identity-webhook#61, D4: exits early on its own output."""
    _, after = judge(pod(container("main", limits={GPU: 1})), "mps")
    after["spec"]["containers"].append(container("late", limits={GPU: "500m"}))
    verdict, again = judge(after, "mps")
    assert resources_of(again, "main") == {"gpu.sharing/mps-1of4": "1"}
    assert resources_of(again, "late") == {"gpu.sharing/mps-1of2": "1"}
    paths = {operation.path for operation in verdict.operations}
    assert not any(path.startswith("/spec/containers/0") for path in paths)


def test_a_forged_record_gives_nothing_that_its_claim_would_not() -> None:
    """HAMi#3041: hand-written allocation annotations trusted."""
    forged = (
        '[{"container":"main","resource":"gpu.sharing/mps-1of2","count":1,"request":"",'
        '"resources":{"nvidia.com/gpu":"125m"},"profile":"mps","reason":""}]'
    )
    manifest = pod(
        container(limits={"gpu.sharing/mps-1of2": 1}),
        annotations={"status.gpu.sharing/grants": forged},
        schedulerName="other",
    )
    _, after = judge(manifest, "mps")
    assert resources_of(after) == {"gpu.sharing/mps-1of8": "1"}


@pytest.mark.parametrize(
    "record",
    [
        "",
        "junk",
        "{}",
        "[1]",
        '[{"container":"main"}]',
        (
            '[{"container":"main","resource":"gpu.sharing/mps-1of2","count":1,"request":"x",'
            '"resources":{},"profile":"","reason":""}]'
        ),
        (
            '[{"container":"main","resource":"gpu.sharing/mps-1of2","count":1,"request":"x",'
            '"resources":{"nvidia.com/gpu":"junk"},"profile":"","reason":""}]'
        ),
        (
            '[{"container":"main","resource":"gpu.sharing/mps-1of2","count":1,"request":"x",'
            '"resources":{"nvidia.com/gpu":1},"profile":"","reason":""}]'
        ),
    ],
)
def test_a_record_that_explains_nothing_is_overwritten(record: str) -> None:
    manifest = pod(
        container(limits={"gpu.sharing/mps-1of2": 1}),
        annotations={"status.gpu.sharing/grants": record, "status.gpu.sharing/forged": "x"},
    )
    verdict, after = judge(manifest, "mps")
    assert resources_of(after) == {"gpu.sharing/mps-1of2": "1"}
    annotations = after["metadata"]["annotations"]
    assert '"request":"gpu.sharing/mps-1of2: 1"' in annotations["status.gpu.sharing/grants"]
    assert "status.gpu.sharing/forged" not in annotations
    assert "status.gpu.sharing/forged was removed: only gpu-sharing writes it" in verdict.warnings


def test_reserved_keys_are_taken_off_pods_without_a_gpu_and_in_any_namespace() -> None:
    manifest = pod(container(), annotations={"status.gpu.sharing/grants": "[]", "mine": "stays"})
    for namespace in ("mps", "free"):
        _, after = judge(manifest, namespace)
        assert after["metadata"]["annotations"] == {"mine": "stays"}


def test_annotations_are_added_one_by_one_and_escaped() -> None:
    """kyverno#365, kyverno#532, B1-B4."""
    manifest = pod(container(limits={GPU: 1}), annotations={"a/b~c": "stays"})
    verdict, after = judge(manifest, "mps")
    assert after["metadata"]["annotations"]["a/b~c"] == "stays"
    paths = [operation.path for operation in verdict.operations]
    assert "/metadata/annotations/status.gpu.sharing~1grants" in paths
    bare = pod(container(limits={GPU: 1}))
    bare["metadata"]["annotations"] = None
    verdict, _ = judge(bare, "mps")
    assert [o.path for o in verdict.operations if "annotations" in o.path] == [
        "/metadata/annotations"
    ]


def test_fields_of_newer_versions_survive() -> None:
    """gardener#6818, windows-testing#576, eks-pod-identity-webhook#208."""
    main = container(limits={GPU: 1}, restartPolicyRules=[{"odd": 1.0}])
    main["resources"]["claims"] = [{"name": "x"}]
    manifest = pod(main, resources={"limits": {"cpu": "2"}}, overhead={"cpu": "1"}, futureField={})
    _, after = judge(manifest, "mps")
    spec = after["spec"]
    assert spec["resources"] == {"limits": {"cpu": "2"}}
    assert spec["futureField"] == {}
    assert spec["containers"][0]["restartPolicyRules"] == [{"odd": 1.0}]
    assert spec["containers"][0]["resources"]["claims"] == [{"name": "x"}]


def test_whatever_else_stands_under_our_status_prefix_goes() -> None:
    forged = {f"status.gpu.sharing/{name}": "x" for name in ("a", "z")}
    verdict, after = judge(pod(container(limits={GPU: 1}), annotations=forged), "mps")
    assert list(after["metadata"]["annotations"]) == ["status.gpu.sharing/grants"]
    assert sum("was removed" in one for one in verdict.warnings) == 2
