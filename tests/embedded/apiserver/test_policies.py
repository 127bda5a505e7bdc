"""ValidatingAdmissionPolicy: the three policies of a gpu-sharing installation, as written."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from embedded.apiserver import ApiServer, service_account
from tests.support.apiserver import PODS, Client, pod

GROUP = "/apis/admissionregistration.k8s.io/v1"

STATUS_KEYS = """
matchConstraints:
  resourceRules:
  - {apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods, pods/status]}
matchConditions:
- name: not-ours
  expression: 'request.userInfo.username != "system:serviceaccount:gpu:controller"'
variables:
- {name: before, expression: 'oldObject.metadata.?annotations.orValue({})'}
- {name: after, expression: 'object.metadata.?annotations.orValue({})'}
- name: changed
  expression: |
    variables.before.filter(k, k.startsWith("status.gpu.sharing/")
      && variables.after[?k].orValue("\\n") != variables.before[k])
    + variables.after.filter(k, k.startsWith("status.gpu.sharing/") && !(k in variables.before))
validations:
- expression: variables.changed.size() == 0
  reason: Forbidden
  messageExpression: >-
    "annotation " + variables.changed.join(", ")
    + " is written by gpu-sharing and cannot be changed or removed"
"""

DEBUG = """
matchConstraints:
  resourceRules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [UPDATE]
    resources: [pods/ephemeralcontainers]
variables:
- {name: old, expression: 'oldObject.spec.?ephemeralContainers.orValue([]).map(c, c.name)'}
- name: bad
  expression: |
    object.spec.?ephemeralContainers.orValue([]).filter(c, !(c.name in variables.old) &&
      (c.?env.orValue([]).exists(e, e.name in ["NVIDIA_VISIBLE_DEVICES"])
       || c.?envFrom.orValue([]).size() > 0)).map(c, c.name)
validations:
- expression: variables.bad.size() == 0
  reason: Forbidden
  messageExpression: '"debug container " + variables.bad.join(", ") + " may not name GPUs"'
"""

BINDINGS = """
matchConstraints:
  resourceRules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [bindings, pods/binding]}
validations:
- expression: >-
    object.metadata.?annotations.orValue({}).all(k, !k.startsWith("status.gpu.sharing/"))
  reason: Forbidden
  message: written by gpu-sharing
"""


async def install(api: Client, spec: str | dict[str, Any], *actions: str, name: str = "p") -> None:
    body = yaml.safe_load(spec) if isinstance(spec, str) else spec
    await api.made(
        f"{GROUP}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": body}
    )
    binding = {"policyName": name, "validationActions": list(actions or ("Deny",))}
    await api.made(
        f"{GROUP}/validatingadmissionpolicybindings", {"metadata": {"name": name}, "spec": binding}
    )


def granted() -> dict[str, Any]:
    wanted = pod()
    wanted["metadata"]["annotations"] = {"status.gpu.sharing/grants": "[]", "mine": "1"}
    return wanted


@pytest.mark.parametrize("path", [f"{PODS}/p", f"{PODS}/p/status"])
@pytest.mark.parametrize(
    "annotations",
    [
        {"status.gpu.sharing/grants": "x"},
        {"status.gpu.sharing/grants": None},
        {"status.gpu.sharing/new": "x"},
    ],
)
async def test_our_status_keys_cannot_be_changed(
    api: Client, path: str, annotations: dict[str, Any]
) -> None:
    await install(api, STATUS_KEYS)
    await api.made(PODS, granted())
    reply = await api.patch(path, {"metadata": {"annotations": annotations}})
    assert (reply.code, reply.body["reason"]) == (403, "Forbidden")
    key = next(iter(annotations))
    assert (
        "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: "
        f"annotation {key} is written" in reply.body["message"]
    )


async def test_other_annotations_and_our_account_pass(
    api: Client, server: ApiServer, session: Any
) -> None:
    await install(api, STATUS_KEYS)
    await api.made(PODS, granted())
    mine = await api.patch(f"{PODS}/p", {"metadata": {"annotations": {"mine": "2"}}})
    assert mine.code == 200
    ours = Client(server.url, session, server.token_for(service_account("gpu", "controller")))
    change = {"metadata": {"annotations": {"status.gpu.sharing/grants": "x"}}}
    assert (await ours.patch(f"{PODS}/p", change)).code == 200


async def test_debug_containers_may_not_name_gpus(api: Client) -> None:
    await install(api, DEBUG)
    await api.made(PODS, pod())
    path = f"{PODS}/p/ephemeralcontainers"
    plain = {"name": "d", "image": "busybox"}
    bad = {
        "name": "e",
        "image": "busybox",
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
    }
    assert (await api.patch(path, {"spec": {"ephemeralContainers": [plain]}})).code == 200
    reply = await api.patch(path, {"spec": {"ephemeralContainers": [plain, bad]}})
    assert (reply.code, "debug container e may not" in reply.body["message"]) == (403, True)


async def test_a_binding_may_not_forge_grants(api: Client) -> None:
    await install(api, BINDINGS)
    await api.made(PODS, pod())
    binding = {
        "metadata": {"annotations": {"status.gpu.sharing/grants": "x"}},
        "target": {"kind": "Node", "name": "n"},
    }
    assert (await api.create(f"{PODS}/p/binding", binding)).code == 403
    assert (await api.create(f"{PODS}/p/binding", {"target": {"name": "n"}})).code == 201


def _simple(expression: str, **more: Any) -> dict[str, Any]:
    rules = [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    ]
    return {
        "matchConstraints": {"resourceRules": rules, **more.pop("match", {})},
        "validations": [{"expression": expression}],
        **more,
    }


async def test_without_a_reason_a_denial_is_422_invalid(api: Client) -> None:
    await install(api, _simple("object.metadata.name != 'p'"))
    reply = await api.create(PODS, pod())
    assert (reply.code, reply.body["reason"]) == (422, "Invalid")
    assert "failed expression: object.metadata.name != 'p'" in reply.body["message"]


async def test_warn_and_audit_let_the_request_pass(api: Client, server: ApiServer) -> None:
    await install(api, _simple("false"), "Warn", "Audit")
    reply = await api.create(PODS, pod())
    assert reply.code == 201
    assert reply.warnings[0].startswith("Validation failed for ValidatingAdmissionPolicy 'p'")
    assert server.audit.annotations("validation.policy.admission.k8s.io/validation_failure")


@pytest.mark.parametrize(("policy", "code"), [("Fail", 422), ("Ignore", 201)])
async def test_an_error_follows_failure_policy(api: Client, policy: str, code: int) -> None:
    await install(api, _simple("object.spec.nope == 1", failurePolicy=policy))
    assert (await api.create(PODS, pod())).code == code


async def test_a_policy_without_binding_does_nothing(api: Client) -> None:
    await api.made(
        f"{GROUP}/validatingadmissionpolicies",
        {"metadata": {"name": "p"}, "spec": _simple("false")},
    )
    assert (await api.create(PODS, pod())).code == 201


async def test_selectors_and_namespace_object_are_those_of_the_request(api: Client) -> None:
    match = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}
    expression = "namespaceObject.metadata.name == 'other'"
    await install(api, _simple(expression, match=match))
    assert (await api.create("/api/v1/namespaces/kube-system/pods", pod())).code == 201
    assert (await api.create(PODS, pod())).code == 422


async def test_an_expression_that_does_not_compile_is_refused_at_once(api: Client) -> None:
    reply = await api.create(
        f"{GROUP}/validatingadmissionpolicies",
        {"metadata": {"name": "p"}, "spec": _simple("object.")},
    )
    assert (reply.code, reply.causes[0][0]) == (422, "spec.validations[0].expression")
