"""Rules for pods after mutation: ValidatePod, ValidatePodUpdate and the defaults before them."""

from __future__ import annotations

from typing import Any

import pytest

from embedded.apiserver.podrules import is_extended
from tests.support.apiserver import PODS, Client, gpu_pod, pod

GPU = "nvidia.com/gpu"


def _resources(limits: Any = None, requests: Any = None) -> dict[str, Any]:
    wanted = pod()
    parts = {"limits": limits, "requests": requests}
    wanted["spec"]["containers"][0]["resources"] = {k: v for k, v in parts.items() if v is not None}
    return wanted


async def test_requests_default_to_limits(api: Client) -> None:
    made = await api.made(PODS, _resources({GPU: "1", "cpu": "1"}, {"cpu": "500m"}))
    assert made["spec"]["containers"][0]["resources"]["requests"] == {GPU: "1", "cpu": "500m"}


@pytest.mark.parametrize(
    ("limits", "requests", "field", "message"),
    [
        ({GPU: "250m"}, None, f"limits[{GPU}]", 'Invalid value: "250m": must be an integer'),
        (
            {GPU: "-1"},
            None,
            f"limits[{GPU}]",
            'Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            None,
            {GPU: "1"},
            "limits",
            "Required value: Limit must be set for non overcommitable resources",
        ),
        (
            {GPU: "2"},
            {GPU: "1"},
            "requests",
            f'Invalid value: "1": must be equal to {GPU} limit of 2',
        ),
        (
            {"cpu": "1"},
            {"cpu": "2"},
            "requests",
            'Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"gpu": "1"},
            None,
            "limits[gpu]",
            'Invalid value: "gpu": must be a standard resource type or fully qualified',
        ),
        (
            {"requests.x.io/gpu": "1"},
            None,
            "limits[requests.x.io/gpu]",
            'Invalid value: "requests.x.io/gpu": doesn\'t follow extended resource name standard',
        ),
    ],
)
async def test_resources_are_checked_in_upstreams_words(
    api: Client, limits: Any, requests: Any, field: str, message: str
) -> None:
    reply = await api.create(PODS, _resources(limits, requests))
    assert (reply.code, reply.body["reason"]) == (422, "Invalid")
    assert (f"spec.containers[0].resources.{field}", message) in reply.causes


@pytest.mark.parametrize("name", ["Upper.com/x", "x.io/" + "a" * 64, "x.io/", "/x", "x y.io/a"])
async def test_a_resource_needs_a_qualified_name(api: Client, name: str) -> None:
    assert (await api.create(PODS, gpu_pod(resource=name))).code == 422


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        (GPU, True),
        ("team-a.gpu.sharing/mps-1of4", True),
        ("cpu", False),
        ("gpu", False),
        ("kubernetes.io/x", False),
        ("a.kubernetes.io/x", False),
        ("requests.a.io/x", False),
    ],
)
def test_extended_resources_carry_a_foreign_domain(name: str, extended: bool) -> None:
    assert is_extended(name) is extended


async def test_quantities_are_stored_canonical(api: Client) -> None:
    made = await api.made(PODS, _resources({"memory": "1024Mi", "cpu": "1.50", GPU: 2}))
    limits = made["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"memory": "1Gi", "cpu": "1500m", GPU: "2"}


async def test_a_quantity_that_is_none_is_a_bad_request(api: Client) -> None:
    reply = await api.create(PODS, _resources({"memory": "10 GB"}))
    assert (
        reply.code,
        "quantities must match the regular expression" in reply.body["message"],
    ) == (400, True)


def _change(path: str, value: Any) -> dict[str, Any]:
    wanted = pod()
    holder: Any = wanted["spec"]
    *steps, last = path.split(".")
    for step in steps:
        holder = holder[int(step) if step.isdecimal() else step]
    holder[int(last) if last.isdecimal() else last] = value
    return wanted


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (_change("containers", []), "spec.containers"),
        (_change("containers.0.name", "Bad_Name"), "spec.containers[0].name"),
        (_change("containers.0.image", ""), "spec.containers[0].image"),
        (_change("containers", [{"name": "c", "image": "x"}] * 2), "spec.containers[1].name"),
        (_change("initContainers", [{"name": "c", "image": "x"}]), "spec.initContainers[0].name"),
        (
            _change("initContainers", [{"name": "i", "image": "x", "restartPolicy": "Sometimes"}]),
            "spec.initContainers[0].restartPolicy",
        ),
        (_change("restartPolicy", "Maybe"), "spec.restartPolicy"),
        (_change("containers.0.env", [{"value": "x"}]), "spec.containers[0].env[0].name"),
        (_change("containers.0.env", [{"name": "a=b"}]), "spec.containers[0].env[0].name"),
        (
            _change("containers.0.volumeMounts", [{"name": "v", "mountPath": "/x"}]),
            "spec.containers[0].volumeMounts[0].name",
        ),
        (_change("volumes", [{"name": "v"}, {"name": "v"}]), "spec.volumes[1].name"),
        (
            _change("volumes", [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]),
            "spec.volumes[0].hostPath",
        ),
        (_change("nodeSelector", {"a": "b c"}), "spec.nodeSelector"),
        (_change("resources", {"limits": {GPU: "1"}}), f"spec.resources.limits[{GPU}]"),
    ],
)
async def test_a_broken_spec_is_422_at_its_field(api: Client, wanted: Any, field: str) -> None:
    reply = await api.create(PODS, wanted)
    assert reply.code == 422
    assert field in [at for at, _ in reply.causes]


async def test_every_broken_rule_is_named_at_once(api: Client) -> None:
    wanted = _resources({GPU: "0.5"})
    wanted["spec"]["restartPolicy"] = "No"
    reply = await api.create(PODS, wanted)
    fields = [at.removeprefix("spec.").partition("[nv")[0] for at, _ in reply.causes]
    resources = "containers[0].resources"
    assert fields == [f"{resources}.limits", f"{resources}.requests", "restartPolicy"]
    assert reply.body["message"].startswith('Pod "p" is invalid: [spec.containers[0].resources')


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"nodeName": "n"}},
        {
            "spec": {
                "containers": [
                    {"name": "c", "resources": {"limits": {GPU: "2"}, "requests": {GPU: "2"}}}
                ]
            }
        },
        {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "b"}]}]}},
        {"spec": {"runtimeClassName": "other"}},
        {"spec": {"containers": [{"name": "d", "image": "x"}]}},
    ],
)
async def test_a_pods_spec_is_for_ever(api: Client, patch: Any) -> None:
    await api.made(PODS, gpu_pod())
    reply = await api.patch(f"{PODS}/p", patch, "application/strategic-merge-patch+json")
    assert (reply.code, "Forbidden: pod updates may not" in reply.body["message"]) == (422, True)


async def test_images_and_more_tolerations_may_change(api: Client) -> None:
    made = await api.made(PODS, pod())
    tolerations = [*made["spec"]["tolerations"], {"key": "x", "operator": "Exists"}]
    change = {
        "spec": {"containers": [{"name": "c", "image": "busybox:2"}], "tolerations": tolerations}
    }
    reply = await api.patch(f"{PODS}/p", change, "application/strategic-merge-patch+json")
    assert reply.code == 200
    assert "generation" in reply.body["metadata"]


async def test_gates_may_be_removed_never_added(api: Client) -> None:
    wanted = pod()
    wanted["spec"]["schedulingGates"] = [{"name": "x.io/wait"}]
    await api.made(PODS, wanted)
    reply = await api.create(f"{PODS}/p/binding", {"target": {"name": "n"}})
    assert (reply.code, "non-empty .spec.schedulingGates" in reply.body["message"]) == (409, True)
    more = {"spec": {"schedulingGates": [{"name": "x.io/wait"}, {"name": "x.io/more"}]}}
    assert (await api.patch(f"{PODS}/p", more)).code == 422
    assert (await api.patch(f"{PODS}/p", {"spec": {"schedulingGates": None}})).code == 200


class TestEphemeralContainers:
    PATH = f"{PODS}/p/ephemeralcontainers"

    async def test_only_the_ephemeral_list_is_honoured(self, api: Client) -> None:
        await api.made(PODS, pod())
        change = {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"nodeName": "n", "ephemeralContainers": [{"name": "d", "image": "x"}]},
        }
        reply = await api.patch(self.PATH, change)
        assert reply.code == 200, reply.body
        assert "labels" not in reply.body["metadata"]
        assert "nodeName" not in reply.body["spec"]
        assert reply.body["spec"]["ephemeralContainers"][0]["name"] == "d"

    async def test_they_cannot_ask_for_resources(self, api: Client) -> None:
        await api.made(PODS, pod())
        bad = {"name": "d", "image": "x", "resources": {"limits": {GPU: "1"}}}
        reply = await api.patch(self.PATH, {"spec": {"ephemeralContainers": [bad]}})
        assert reply.causes[0] == (
            "spec.ephemeralContainers[0].resources",
            "Forbidden: cannot be set for an Ephemeral Container",
        )

    async def test_they_are_never_removed(self, api: Client) -> None:
        await api.made(PODS, pod())
        await api.patch(self.PATH, {"spec": {"ephemeralContainers": [{"name": "d", "image": "x"}]}})
        reply = await api.patch(self.PATH, {"spec": {"ephemeralContainers": None}})
        assert reply.code == 422

    async def test_the_pod_itself_does_not_take_them(self, api: Client) -> None:
        await api.made(PODS, pod())
        change = {"spec": {"ephemeralContainers": [{"name": "d", "image": "x"}]}}
        assert (await api.patch(f"{PODS}/p", change)).code == 422


class TestPriority:
    """The Priority plug-in runs before webhooks and again after them."""

    async def test_a_class_sets_the_number(self, api: Client) -> None:
        await api.made(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": "high"}, "value": 100},
        )
        wanted = pod()
        wanted["spec"]["priorityClassName"] = "high"
        assert (await api.made(PODS, wanted))["spec"]["priority"] == 100

    async def test_an_unknown_class_is_forbidden(self, api: Client) -> None:
        wanted = pod()
        wanted["spec"]["priorityClassName"] = "nope"
        reply = await api.create(PODS, wanted)
        assert (reply.code, "no PriorityClass with name nope" in reply.body["message"]) == (
            403,
            True,
        )

    async def test_a_number_by_hand_is_forbidden(self, api: Client) -> None:
        wanted = pod()
        wanted["spec"]["priority"] = 7
        assert (await api.create(PODS, wanted)).code == 403


async def test_a_template_is_checked_like_a_pod(api: Client) -> None:
    labels = {"a": "b"}
    body = {
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _resources({GPU: "250m"})["spec"]},
        },
    }
    reply = await api.create("/apis/apps/v1/namespaces/default/deployments", body)
    assert reply.causes[0] == (
        f"spec.template.spec.containers[0].resources.limits[{GPU}]",
        'Invalid value: "250m": must be an integer',
    )


async def test_a_jobs_pods_need_a_restart_policy_that_ends(api: Client) -> None:
    body = {"metadata": {"name": "j"}, "spec": {"template": {"spec": pod()["spec"]}}}
    reply = await api.create("/apis/batch/v1/namespaces/default/jobs", body)
    assert reply.causes[0][0] == "spec.template.spec.restartPolicy"
