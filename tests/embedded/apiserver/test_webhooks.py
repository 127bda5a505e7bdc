"""Admission call-outs: each test names the rule of admission/v1 or of the dispatchers."""

from __future__ import annotations

import asyncio
import base64
import socket
import time
from typing import Any

import pytest
from aiohttp import web

from embedded.apiserver import ApiServer, service_account
from tests.support.apiserver import PODS, Client, config_map, gpu_pod, pod
from tests.support.apiserver_webhook import (
    Webhook,
    allow,
    configuration,
    deny,
    patched,
    rule,
)

CONFIGS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
LABEL = {"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}


async def test_the_review_carries_what_the_contract_lists(
    api: Client, hook: Webhook, server: ApiServer, session: Any
) -> None:
    await api.made(CONFIGS, configuration(hook.entry()))
    token = server.token_for(service_account("kube-system", "replicaset-controller"))
    wanted = pod()
    wanted["metadata"] = {"generateName": "web-", "uid": "forged"}
    reply = await Client(server.url, session, token).create(
        PODS, wanted, dryRun="All", fieldManager="me", fieldValidation="Strict"
    )
    assert reply.code == 201
    path, review, http = hook.requests[0]
    request = review["request"]
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert (
        request["kind"] == request["requestKind"] == {"group": "", "version": "v1", "kind": "Pod"}
    )
    assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert (request["operation"], request["namespace"]) == ("CREATE", "default")
    assert "name" not in request, "the name is generated after mutating admission"
    assert (
        request["userInfo"]["username"] == "system:serviceaccount:kube-system:replicaset-controller"
    )
    assert "system:serviceaccounts" in request["userInfo"]["groups"]
    assert request["dryRun"] is True
    assert request["options"] == {
        "kind": "CreateOptions",
        "apiVersion": "meta.k8s.io/v1",
        "fieldManager": "me",
        "dryRun": ["All"],
        "fieldValidation": "Strict",
    }
    assert request["oldObject"] is None
    seen = request["object"]
    assert seen["metadata"]["namespace"] == "default"
    assert "uid" not in seen["metadata"]
    assert seen["spec"]["schedulerName"] == "default-scheduler", "defaults come before admission"
    assert path == "/m"
    assert http.query["timeout"] == "10s"
    assert http.headers["Content-Type"] == "application/json"
    assert http.version == (1, 1)


async def test_a_patch_is_applied_and_defaulted_again(api: Client, hook: Webhook) -> None:
    added = {"name": "side", "image": "busybox", "resources": {"limits": {"cpu": "1.5"}}}
    operation = {"op": "add", "path": "/spec/containers/-", "value": added}
    hook.answers["/m"] = lambda review: patched(review, operation)
    await api.made(CONFIGS, configuration(hook.entry()))
    made = await api.made(PODS, pod())
    side = made["spec"]["containers"][1]
    assert side["terminationMessagePath"] == "/dev/termination-log"
    assert side["resources"] == {"limits": {"cpu": "1500m"}, "requests": {"cpu": "1500m"}}


async def test_validation_runs_after_mutation(api: Client, hook: Webhook) -> None:
    """A fraction is 422 by itself; a webhook that makes it whole makes it acceptable."""
    refused = await api.create(PODS, gpu_pod(count="250m"))
    assert refused.code == 422
    assert "must be an integer" in refused.body["message"]
    hook.answers["/m"] = lambda review: patched(
        review,
        {
            "op": "replace",
            "path": "/spec/containers/0/resources",
            "value": {"limits": {"gpu.sharing/mps-1of4": "1"}},
        },
    )
    await api.made(CONFIGS, configuration(hook.entry()))
    made = await api.made(PODS, gpu_pod(count="250m"))
    resources = made["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"gpu.sharing/mps-1of4": "1"}


async def test_a_mutated_pod_that_breaks_the_rules_is_refused(api: Client, hook: Webhook) -> None:
    hook.answers["/m"] = lambda review: patched(
        review,
        {
            "op": "add",
            "path": "/spec/containers/0/resources/requests",
            "value": {"gpu.sharing/mps-1of4": "1"},
        },
    )
    await api.made(CONFIGS, configuration(hook.entry()))
    reply = await api.create(PODS, pod())
    assert reply.code == 422
    assert reply.causes == [
        (
            "spec.containers[0].resources.limits",
            "Required value: Limit must be set for non overcommitable resources",
        )
    ]


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ({}, 400, 'admission webhook "pods.test.io" denied the request without explanation'),
        ({"reason": "Why"}, 400, 'admission webhook "pods.test.io" denied the request: Why'),
        (
            {"code": 200, "message": "no"},
            400,
            'admission webhook "pods.test.io" denied the request: no',
        ),
        (
            {"code": 403, "message": "no"},
            403,
            'admission webhook "pods.test.io" denied the request: no',
        ),
        (
            {"code": 422, "message": "no"},
            422,
            'admission webhook "pods.test.io" denied the request: no',
        ),
    ],
)
async def test_a_denial_carries_code_and_message(
    api: Client, hook: Webhook, status: dict[str, Any], code: int, message: str
) -> None:
    """ToStatusErr: below 400 becomes 400, the message is prefixed with the webhook's name."""
    hook.answers["/m"] = lambda review: deny(review, **status)
    await api.made(CONFIGS, configuration(hook.entry()))
    reply = await api.create(PODS, pod())
    assert (reply.code, reply.body["message"]) == (code, message)
    assert reply.body["status"] == "Failure"


def _wrong_uid(review: Any) -> Any:
    answer = allow(review)
    answer["response"]["uid"] = "other"
    return answer


def _patch_without_type(review: Any) -> Any:
    answer = patched(review, LABEL)
    del answer["response"]["patchType"]
    return answer


BREACHES: dict[str, Any] = {
    "expected response.uid=": _wrong_uid,
    "webhook response was absent": lambda _: {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
    },
    "expected webhook response of admission.k8s.io/v1": lambda r: {
        "response": allow(r)["response"]
    },
    "response.patch but not response.patchType": _patch_without_type,
    "response.patchType but not response.patch": lambda r: allow(r, patchType="JSONPatch"),
    "unsupported patch type": lambda r: allow(r, patch="W10=", patchType="MergePatch"),
    "cannot be decoded": lambda r: allow(r, patch="!!", patchType="JSONPatch"),
    "json parse error": lambda _: web.Response(text="hello"),
    'an error on the server (\\"down\\")': lambda _: web.Response(status=500, text="down"),
    "could not find the requested resource": lambda _: web.Response(status=404),
}


@pytest.mark.parametrize("breach", BREACHES)
async def test_a_breach_of_the_contract_follows_failure_policy(
    api: Client, hook: Webhook, breach: str
) -> None:
    hook.answers["/m"] = BREACHES[breach]
    await api.made(CONFIGS, configuration(hook.entry()))
    reply = await api.create(PODS, pod())
    assert (reply.code, reply.body["reason"]) == (500, "InternalError")
    assert 'Internal error occurred: failed calling webhook "pods.test.io"' in reply.body["message"]
    assert breach.replace("\\", "") in reply.body["message"].replace("\\", "")
    await api.patch(f"{CONFIGS}/cfg", {"webhooks": [hook.entry(failurePolicy="Ignore")]})
    assert (await api.create(PODS, pod())).code == 201


async def test_an_empty_patch_list_is_no_change(api: Client, hook: Webhook) -> None:
    hook.answers["/m"] = lambda review: allow(review, patch="W10=", patchType="JSONPatch")
    await api.made(CONFIGS, configuration(hook.entry()))
    assert (await api.create(PODS, pod())).code == 201


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/spec/nope/deep", "value": 1},
        {"op": "add", "path": "/spec/containers/0/name", "value": 5},
        {"op": "test", "path": "/metadata/name", "value": "other"},
    ],
)
async def test_a_patch_that_does_not_fit_fails_whatever_the_policy(
    api: Client, hook: Webhook, operation: Any
) -> None:
    """Applying the patch is no call: its failure is an internal error even under Ignore."""
    hook.answers["/m"] = lambda review: patched(review, operation)
    await api.made(CONFIGS, configuration(hook.entry(failurePolicy="Ignore")))
    assert (await api.create(PODS, pod())).code == 500


async def test_a_patch_on_delete_is_an_internal_error(api: Client, hook: Webhook) -> None:
    hook.answers["/m"] = lambda review: patched(review, LABEL)
    await api.made(PODS, pod())
    await api.made(CONFIGS, configuration(hook.entry(rules=[rule("pods", operations=("DELETE",))])))
    reply = await api.delete(f"{PODS}/p")
    assert reply.code == 500
    assert "attempted to modify the object, which is not supported" in reply.body["message"]
    request = hook.reviews()[0]
    assert request["object"] is None
    assert request["oldObject"]["metadata"]["name"] == "p"
    assert request["options"]["kind"] == "DeleteOptions"


@pytest.mark.parametrize(("policy", "code"), [("Fail", 500), ("Ignore", 201)])
async def test_an_unreachable_webhook_follows_failure_policy(
    api: Client, hook: Webhook, server: ApiServer, policy: str, code: int
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"https://localhost:{closed.getsockname()[1]}/m"
        entry = hook.entry(failurePolicy=policy, clientConfig={"url": url, "caBundle": hook.bundle})
        await api.made(CONFIGS, configuration(entry))
        reply = await api.create(PODS, pod())
    assert reply.code == code
    failed_open = server.audit.annotations(
        "failed-open.mutating.webhook.admission.k8s.io/round_0_index_0"
    )
    assert failed_open == (["pods.test.io"] if policy == "Ignore" else [])
    if policy == "Fail":
        assert f'failed to call webhook: Post "{url}?timeout=10s"' in reply.body["message"]


async def test_a_slow_webhook_is_cut_at_its_timeout(api: Client, hook: Webhook) -> None:
    async def never(review: Any) -> Any:
        await asyncio.Event().wait()
        return allow(review)

    hook.answers["/m"] = never
    await api.made(CONFIGS, configuration(hook.entry(timeoutSeconds=1)))
    started = time.monotonic()
    reply = await api.create(PODS, pod())
    assert 0.9 < time.monotonic() - started < 3
    assert reply.code == 500
    assert "context deadline exceeded" in reply.body["message"]
    assert hook.requests[0][2].query["timeout"] == "1s"


async def test_a_certificate_of_another_authority_is_not_trusted(
    api: Client, hook: Webhook
) -> None:
    """Without caBundle the system's roots count, and they do not know this authority."""
    entry = hook.entry(clientConfig={"url": f"https://localhost:{hook.port}/m"})
    await api.made(CONFIGS, configuration(entry))
    reply = await api.create(PODS, pod())
    assert reply.code == 500
    assert "tls: failed to verify certificate: x509" in reply.body["message"]
    assert hook.requests == []


async def test_a_name_that_the_certificate_lacks_is_refused(api: Client, hook: Webhook) -> None:
    services = "/api/v1/namespaces/default/services"
    service = {
        "metadata": {
            "name": "other",
            "annotations": {"embedded.gpu.sharing/endpoint": f"127.0.0.1:{hook.port}"},
        },
        "spec": {"ports": [{"port": 443}]},
    }
    await api.made(services, service)
    config = {
        "service": {"name": "other", "namespace": "default", "path": "/m"},
        "caBundle": hook.bundle,
    }
    await api.made(CONFIGS, configuration(hook.entry(clientConfig=config)))
    reply = await api.create(PODS, pod())
    assert reply.code == 500
    assert "other.default.svc" in reply.body["message"]


async def test_a_service_is_called_under_its_cluster_name(api: Client, hook: Webhook) -> None:
    """ServerName is <service>.<namespace>.svc whatever address is dialled."""
    await api.made("/api/v1/namespaces", {"metadata": {"name": "system"}})
    await api.made(
        "/api/v1/namespaces/system/services",
        {
            "metadata": {
                "name": "gpu-sharing",
                "annotations": {"embedded.gpu.sharing/endpoint": f"127.0.0.1:{hook.port}"},
            },
            "spec": {"ports": [{"port": 443}]},
        },
    )
    config = {
        "service": {"name": "gpu-sharing", "namespace": "system", "path": "/m"},
        "caBundle": hook.bundle,
    }
    await api.made(CONFIGS, configuration(hook.entry(clientConfig=config)))
    await api.made(PODS, pod())
    assert hook.requests[0][2].headers["Host"] == "gpu-sharing.system.svc:443"


async def test_a_service_that_does_not_exist_is_a_calling_error(api: Client, hook: Webhook) -> None:
    config = {"service": {"name": "no", "namespace": "where"}, "caBundle": hook.bundle}
    await api.made(CONFIGS, configuration(hook.entry(clientConfig=config)))
    reply = await api.create(PODS, pod())
    assert (reply.code, 'service "no" not found' in reply.body["message"]) == (500, True)


async def test_an_answer_with_retry_after_is_tried_again(api: Client, hook: Webhook) -> None:
    """429 and 5xx with an integer Retry-After are retried; client-go's rule."""
    replies = [
        web.Response(status=503, headers={"Retry-After": "0"}),
        web.Response(status=429, headers={"Retry-After": "0"}),
    ]
    hook.answers["/m"] = lambda review: replies.pop(0) if replies else allow(review)
    await api.made(CONFIGS, configuration(hook.entry()))
    assert (await api.create(PODS, pod())).code == 201
    assert len(hook.requests) == 3
    assert len({request["uid"] for request in hook.reviews()}) == 1


async def test_retries_end_after_ten(api: Client, hook: Webhook) -> None:
    hook.answers["/m"] = lambda _: web.Response(status=503, headers={"Retry-After": "0"})
    await api.made(CONFIGS, configuration(hook.entry()))
    assert (await api.create(PODS, pod())).code == 500
    assert len(hook.requests) == 11


async def test_warnings_reach_the_client_also_when_refused(api: Client, hook: Webhook) -> None:
    hook.answers["/m"] = lambda review: allow(review, warnings=["rounded up to 1of4"])
    await api.made(CONFIGS, configuration(hook.entry()))
    assert (await api.create(PODS, pod())).warnings == ["rounded up to 1of4"]

    def refuse(review: Any) -> Any:
        answer = deny(review, message="no", code=403)
        answer["response"]["warnings"] = ["look out"]
        return answer

    hook.answers["/m"] = refuse
    reply = await api.create(PODS, pod("q"))
    assert (reply.code, reply.warnings) == (403, ["look out"])


async def test_audit_annotations_are_recorded_under_the_webhooks_name(
    api: Client, hook: Webhook, server: ApiServer
) -> None:
    hook.answers["/m"] = lambda review: patched(review, LABEL, auditAnnotations={"grant": "1of4"})
    await api.made(CONFIGS, configuration(hook.entry()))
    await api.made(PODS, pod())
    assert server.audit.annotations("pods.test.io/grant") == ["1of4"]
    mutation = server.audit.annotations("mutation.webhook.admission.k8s.io/round_0_index_0")
    assert mutation == ['{"configuration":"cfg","webhook":"pods.test.io","mutated":true}']
    recorded = server.audit.annotations("patch.webhook.admission.k8s.io/round_0_index_0")
    assert '"patchType":"JSONPatch"' in recorded[0]


async def test_configurations_are_called_by_name_then_as_listed(api: Client, hook: Webhook) -> None:
    entries = [hook.entry(f"{name}.test.io", f"/{name}") for name in ("c", "d", "a", "b")]
    await api.made(CONFIGS, configuration(*entries[2:], name="z-second"))
    await api.made(CONFIGS, configuration(*entries[:2], name="a-first"))
    await api.made(PODS, pod())
    assert [path for path, _, _ in hook.requests] == ["/c", "/d", "/a", "/b"]


async def test_each_webhook_sees_what_the_one_before_changed(api: Client, hook: Webhook) -> None:
    hook.answers["/a"] = lambda review: patched(review, LABEL)
    await api.made(CONFIGS, configuration(hook.entry("a.t.io", "/a"), hook.entry("b.t.io", "/b")))
    await api.made(PODS, pod())
    assert hook.reviews("/b")[0]["object"]["metadata"]["labels"] == {"seen": "yes"}


class TestReinvocation:
    """At most two passes; only webhooks with IfNeeded, whose object changed after their call."""

    async def test_an_earlier_webhook_is_called_again_after_a_later_change(
        self, api: Client, hook: Webhook
    ) -> None:
        hook.answers["/b"] = lambda review: patched(review, LABEL)
        first = hook.entry("a.t.io", "/a", reinvocationPolicy="IfNeeded")
        await api.made(CONFIGS, configuration(first, hook.entry("b.t.io", "/b")))
        await api.made(PODS, pod())
        assert [path for path, _, _ in hook.requests] == ["/a", "/b", "/a"]
        assert hook.reviews("/a")[1]["object"]["metadata"]["labels"] == {"seen": "yes"}

    async def test_never_means_one_call(self, api: Client, hook: Webhook) -> None:
        hook.answers["/b"] = lambda review: patched(review, LABEL)
        await api.made(
            CONFIGS, configuration(hook.entry("a.t.io", "/a"), hook.entry("b.t.io", "/b"))
        )
        await api.made(PODS, pod())
        assert [path for path, _, _ in hook.requests] == ["/a", "/b"]

    async def test_the_only_one_that_changed_something_is_not_called_again(
        self, api: Client, hook: Webhook
    ) -> None:
        hook.answers["/a"] = lambda review: patched(review, LABEL)
        await api.made(
            CONFIGS, configuration(hook.entry("a.t.io", "/a", reinvocationPolicy="IfNeeded"))
        )
        await api.made(PODS, pod())
        assert [path for path, _, _ in hook.requests] == ["/a"]

    async def test_two_that_always_change_stop_after_two_passes(
        self, api: Client, hook: Webhook
    ) -> None:
        def count(review: Any) -> Any:
            labels = dict(review["request"]["object"]["metadata"].get("labels") or {})
            labels[f"n{len(labels)}"] = "x"
            return patched(review, {"op": "add", "path": "/metadata/labels", "value": labels})

        hook.answers |= {"/a": count, "/b": count}
        entries = [hook.entry(f"{n}.t.io", f"/{n}", reinvocationPolicy="IfNeeded") for n in "ab"]
        await api.made(CONFIGS, configuration(*entries))
        made = await api.made(PODS, pod())
        assert [path for path, _, _ in hook.requests] == ["/a", "/b", "/a", "/b"]
        assert len(made["metadata"]["labels"]) == 4

    async def test_a_webhook_skipped_in_the_first_pass_stays_skipped(
        self, api: Client, hook: Webhook
    ) -> None:
        """It would match now, yet the second pass calls only who was called before."""
        hook.answers["/b"] = lambda review: patched(review, LABEL)
        shy = hook.entry(
            "a.t.io",
            "/a",
            reinvocationPolicy="IfNeeded",
            objectSelector={"matchLabels": {"seen": "yes"}},
        )
        await api.made(CONFIGS, configuration(shy, hook.entry("b.t.io", "/b")))
        await api.made(PODS, pod())
        assert [path for path, _, _ in hook.requests] == ["/b"]


class TestMatching:
    async def test_the_namespace_selector_reads_the_namespaces_labels(
        self, api: Client, hook: Webhook
    ) -> None:
        """kubernetes.io/metadata.name is the API server's own label, so it can exempt by name."""
        selector = {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system"],
                }
            ]
        }
        await api.made(CONFIGS, configuration(hook.entry(namespaceSelector=selector)))
        await api.made("/api/v1/namespaces/kube-system/pods", pod())
        assert hook.requests == []
        await api.made(PODS, pod())
        assert len(hook.requests) == 1

    async def test_a_namespace_object_is_selected_by_its_own_labels(
        self, api: Client, hook: Webhook
    ) -> None:
        entry = hook.entry(
            rules=[rule("namespaces", scope="Cluster")],
            namespaceSelector={"matchLabels": {"team": "a"}},
        )
        await api.made(CONFIGS, configuration(entry))
        await api.made("/api/v1/namespaces", {"metadata": {"name": "b"}})
        assert hook.requests == []
        await api.made("/api/v1/namespaces", {"metadata": {"name": "a", "labels": {"team": "a"}}})
        assert hook.reviews()[0]["namespace"] == "a"

    async def test_the_object_selector_takes_old_or_new(self, api: Client, hook: Webhook) -> None:
        entry = hook.entry(
            rules=[rule("configmaps", operations=("UPDATE",))],
            objectSelector={"matchLabels": {"watch": "me"}},
        )
        await api.made(CONFIGS, configuration(entry))
        path = "/api/v1/namespaces/default/configmaps"
        await api.made(path, config_map("m"))
        await api.patch(f"{path}/m", {"metadata": {"labels": {"x": "y"}}})
        assert hook.requests == []
        await api.patch(f"{path}/m", {"metadata": {"labels": {"watch": "me"}}})
        await api.patch(f"{path}/m", {"metadata": {"labels": {"watch": None}}})
        assert len(hook.requests) == 2

    @pytest.mark.parametrize(
        ("resources", "reviewed"),
        [
            (("pods",), ["pods"]),
            (("pods/status",), ["pods/status"]),
            (("pods/*",), ["pods", "pods/status"]),
            (("*",), ["pods"]),
            (("*/*",), ["pods", "pods/status"]),
            (("*/status",), ["pods/status"]),
            (("configmaps",), []),
        ],
    )
    async def test_rules_name_resources_and_subresources(
        self, api: Client, hook: Webhook, resources: tuple[str, ...], reviewed: list[str]
    ) -> None:
        """ "pods" does not match "pods/status"; "*" matches no subresource; "*/*" does."""
        await api.made(PODS, pod())
        entry = hook.entry(rules=[rule(*resources, operations=("UPDATE",))])
        await api.made(CONFIGS, configuration(entry))
        await api.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
        await api.patch(f"{PODS}/p/status", {"status": {"phase": "Running"}})
        seen = [
            "/".join(filter(None, (r["resource"]["resource"], r.get("subResource", ""))))
            for r in hook.reviews()
        ]
        assert seen == reviewed

    async def test_a_patch_that_creates_arrives_as_create(self, api: Client, hook: Webhook) -> None:
        both = rule("configmaps", operations=("CREATE", "UPDATE"))
        await api.made(CONFIGS, configuration(hook.entry(rules=[both])))
        path = "/api/v1/namespaces/default/configmaps/m"
        for value in ("1", "2"):
            await api.patch(
                path, config_map("m", a=value), "application/apply-patch+yaml", fieldManager="t"
            )
        assert [request["operation"] for request in hook.reviews()] == ["CREATE", "UPDATE"]

    async def test_a_binding_is_a_creation_of_pods_binding(
        self, api: Client, hook: Webhook
    ) -> None:
        await api.made(PODS, pod())
        await api.made(
            VALIDATING, configuration(hook.entry(rules=[rule("pods/binding")]), kind="Validating")
        )
        reply = await api.create(
            f"{PODS}/p/binding",
            {
                "metadata": {"name": "p", "annotations": {"a": "b"}},
                "target": {"kind": "Node", "name": "n"},
            },
        )
        assert reply.code == 201
        request = hook.reviews()[0]
        assert request["kind"]["kind"] == "Binding"
        assert request["subResource"] == "binding"
        assert (await api.get(f"{PODS}/p")).body["metadata"]["annotations"] == {"a": "b"}

    async def test_configurations_themselves_are_never_reviewed(
        self, api: Client, hook: Webhook
    ) -> None:
        """So deleting a broken configuration always works."""
        hook.answers["/m"] = lambda review: deny(review, message="all")
        everything = rule("*/*", operations=("*",))
        await api.made(CONFIGS, configuration(hook.entry(rules=[everything])))
        assert (await api.delete(f"{CONFIGS}/cfg")).code == 200
        assert hook.requests == []


CONDITION = """!("system:nodes" in request.?userInfo.?groups.orValue([]))"""
OURS = """
object.?metadata.?annotations.orValue({}).exists(k,
  k.startsWith("gpu.sharing/") || k.contains(".gpu.sharing/"))
|| (object.?spec.?containers.orValue([]) + object.?spec.?initContainers.orValue([])).exists(c,
  [c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})].exists(m, m.exists(k,
    k.startsWith("nvidia.com/gpu") || k.startsWith("nvidia.com/mig-")
    || k.startsWith("gpu.sharing/") || k.contains(".gpu.sharing/"))))
"""


class TestMatchConditions:
    """Any false skips; all true calls; else an error fails or skips by failurePolicy."""

    async def test_only_pods_that_name_our_keys_are_sent(self, api: Client, hook: Webhook) -> None:
        conditions = [
            {"name": "not-kubelet", "expression": CONDITION},
            {"name": "ours", "expression": OURS},
        ]
        rules = [rule("pods", operations=("CREATE", "DELETE"))]
        await api.made(CONFIGS, configuration(hook.entry(rules=rules, matchConditions=conditions)))
        annotated = pod("annotated")
        annotated["metadata"]["annotations"] = {"gpu.sharing/fraction": "0.25"}
        near = gpu_pod("near", "notgpu.sharing.example.com/x")
        await api.made(PODS, pod("plain"))
        await api.made(PODS, near)
        await api.made(PODS, annotated)
        await api.made(PODS, gpu_pod("gpu"))
        await api.made(PODS, gpu_pod("pool", "team-a.gpu.sharing/mps-1of4"))
        names = [request["object"]["metadata"]["name"] for request in hook.reviews()]
        assert names == ["annotated", "gpu", "pool"]

    async def test_a_null_object_is_absent_for_optional_access(
        self, api: Client, hook: Webhook
    ) -> None:
        """On DELETE object is null; the condition is false there and nobody is called."""
        rules = [rule("pods", operations=("DELETE",))]
        conditions = [{"name": "ours", "expression": OURS}]
        await api.made(CONFIGS, configuration(hook.entry(rules=rules, matchConditions=conditions)))
        await api.made(PODS, gpu_pod())
        assert (await api.delete(f"{PODS}/p")).code == 200
        assert hook.requests == []

    async def test_object_is_still_null_when_compared(self, api: Client, hook: Webhook) -> None:
        rules = [rule("pods", operations=("DELETE",))]
        conditions = [{"name": "gone", "expression": "object == null"}]
        await api.made(CONFIGS, configuration(hook.entry(rules=rules, matchConditions=conditions)))
        await api.made(PODS, pod())
        await api.delete(f"{PODS}/p")
        assert len(hook.requests) == 1

    @pytest.mark.parametrize(("policy", "code"), [("Fail", 403), ("Ignore", 201)])
    async def test_an_error_follows_failure_policy(
        self, api: Client, hook: Webhook, policy: str, code: int
    ) -> None:
        conditions = [{"name": "broken", "expression": "object.spec.nope == 1"}]
        entry = hook.entry(failurePolicy=policy, matchConditions=conditions)
        await api.made(CONFIGS, configuration(entry))
        assert (await api.create(PODS, pod())).code == code
        assert hook.requests == []

    async def test_one_false_outweighs_an_error(self, api: Client, hook: Webhook) -> None:
        conditions = [
            {"name": "broken", "expression": "object.spec.nope == 1"},
            {"name": "no", "expression": "false"},
        ]
        await api.made(CONFIGS, configuration(hook.entry(matchConditions=conditions)))
        assert (await api.create(PODS, pod())).code == 201


class TestDryRun:
    async def test_the_webhook_is_told(self, api: Client, hook: Webhook) -> None:
        await api.made(CONFIGS, configuration(hook.entry()))
        await api.create(PODS, pod(), dryRun="All")
        await api.create(PODS, pod())
        assert [request["dryRun"] for request in hook.reviews()] == [True, False]


class TestValidating:
    async def test_it_sees_the_mutated_object_with_its_name(
        self, api: Client, hook: Webhook
    ) -> None:
        hook.answers["/m"] = lambda review: patched(review, LABEL)
        await api.made(CONFIGS, configuration(hook.entry()))
        await api.made(VALIDATING, configuration(hook.entry(path="/v"), kind="Validating"))
        wanted = pod()
        wanted["metadata"] = {"generateName": "x-"}
        made = await api.made(PODS, wanted)
        seen = hook.reviews("/v")[0]["object"]["metadata"]
        assert (seen["labels"], seen["name"]) == ({"seen": "yes"}, made["metadata"]["name"])

    async def test_it_may_not_patch(self, api: Client, hook: Webhook) -> None:
        hook.answers["/v"] = lambda review: patched(review, LABEL)
        await api.made(VALIDATING, configuration(hook.entry(path="/v"), kind="Validating"))
        reply = await api.create(PODS, pod())
        assert (reply.code, "may not return response.patch" in reply.body["message"]) == (500, True)

    async def test_all_are_asked_at_once(self, api: Client, hook: Webhook) -> None:
        """Both wait for the other, so calls in sequence would never end."""
        barrier = asyncio.Barrier(2)

        async def meet(review: Any) -> Any:
            async with asyncio.timeout(5):
                await barrier.wait()
            return allow(review)

        hook.answers |= {"/a": meet, "/b": meet}
        entries = [hook.entry(f"{n}.t.io", f"/{n}") for n in "ab"]
        await api.made(VALIDATING, configuration(*entries, kind="Validating"))
        assert (await api.create(PODS, pod())).code == 201

    async def test_an_invalid_object_is_not_sent(self, api: Client, hook: Webhook) -> None:
        """The registry's own validation comes between mutating and validating admission."""
        await api.made(VALIDATING, configuration(hook.entry(path="/v"), kind="Validating"))
        assert (await api.create(PODS, gpu_pod(count="0.5"))).code == 422
        assert hook.requests == []


class TestConfigurationRules:
    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"name": "short.io"}, "webhooks[0].name"),
            ({"sideEffects": "Some"}, "webhooks[0].sideEffects"),
            ({"sideEffects": None}, "webhooks[0].sideEffects"),
            ({"admissionReviewVersions": ["v9"]}, "webhooks[0].admissionReviewVersions"),
            ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds"),
            ({"failurePolicy": "Maybe"}, "webhooks[0].failurePolicy"),
            ({"clientConfig": {"url": "http://localhost/m"}}, "webhooks[0].clientConfig.url"),
            ({"clientConfig": {}}, "webhooks[0].clientConfig"),
            (
                {"matchConditions": [{"name": "x", "expression": "object."}]},
                "webhooks[0].matchConditions[0].expression",
            ),
            ({"rules": [rule("pods", operations=("READ",))]}, "webhooks[0].rules[0].operations[0]"),
        ],
    )
    async def test_a_bad_entry_is_refused_at_once(
        self, api: Client, hook: Webhook, change: dict[str, Any], field: str
    ) -> None:
        reply = await api.create(CONFIGS, configuration({**hook.entry(), **change}))
        assert reply.code == 422
        assert field in [at for at, _ in reply.causes]

    async def test_defaults_are_those_of_v1(self, api: Client, hook: Webhook) -> None:
        made = (await api.made(CONFIGS, configuration(hook.entry())))["webhooks"][0]
        assert (
            made["failurePolicy"],
            made["matchPolicy"],
            made["timeoutSeconds"],
            made["reinvocationPolicy"],
            made["namespaceSelector"],
        ) == ("Fail", "Equivalent", 10, "Never", {})
        assert made["rules"][0]["scope"] == "*"


async def test_connections_are_kept_and_used_again(api: Client, hook: Webhook) -> None:
    await api.made(CONFIGS, configuration(hook.entry()))
    for index in range(4):
        await api.made(PODS, pod(f"p{index}"))
    transports = {id(request.transport) for _, _, request in hook.requests}
    assert len(transports) == 1


async def test_a_changed_bundle_makes_new_connections(api: Client, hook: Webhook) -> None:
    await api.made(CONFIGS, configuration(hook.entry()))
    await api.made(PODS, pod("a"))
    first = hook.requests[0][2].transport
    doubled = base64.b64encode(hook.ca + hook.ca).decode()
    config = {"url": f"https://localhost:{hook.port}/m", "caBundle": doubled}
    await api.patch(f"{CONFIGS}/cfg", {"webhooks": [hook.entry(clientConfig=config)]})
    await api.made(PODS, pod("b"))
    assert hook.requests[1][2].transport is not first
