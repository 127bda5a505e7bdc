"""The rules that the API server itself keeps, with the webhook or without it (rendered, pure).

A webhook sees pods when they are created. What it wrote on them is guarded by
ValidatingAdmissionPolicies: they run inside the API server, after all webhooks, and cannot be
away.

    python -m webhook.guardpolicies --write deploy/policies

Source: Kubernetes API reference, ``admissionregistration.k8s.io/v1``. The expressions use CEL's
optional access throughout, which Kubernetes has since 1.28, so they do not fail on odd pods.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sharing.api.crd import render
from sharing.names import GRANTS_ANNOTATION, MILLI_GPU, MODE_LABEL, PROFILE_LABEL, STATUS_PREFIX
from webhook.guard import DEBUG_VARIABLES
from webhook.openings import DEVICE_ANNOTATIONS, KAI_AMOUNTS
from webhook.registration import SYSTEM_NAMESPACES

CONTROLLER: Final = "system:serviceaccount:gpu-sharing:gpu-sharing-controller"
"""The account that may write status keys on pods that exist."""

_STATUS: Final = f'k.startsWith("{STATUS_PREFIX}/")'
_IS_SHARE: Final = '(k.startsWith("gpu.sharing/") || k.contains(".gpu.sharing/"))'
_IS_GPU: Final = (
    f'(k.startsWith("nvidia.com/gpu") || k.startsWith("nvidia.com/mig-") || {_IS_SHARE})'
)
_CONTAINERS: Final = (
    "(object.?spec.?containers.orValue([]) + object.?spec.?initContainers.orValue([]))"
)
_AMOUNTS: Final = "[c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})]"
_HAS_GRANT: Final = f'("{GRANTS_ANNOTATION}" in object.metadata.?annotations.orValue({{}}))'
_NAMES_A_SHARE: Final = (
    f'{_CONTAINERS}.exists(c, {_AMOUNTS}.exists(m, m.exists(k, m[k] != "0" && {_IS_SHARE})))'
)
_NAMES_A_GPU: Final = f"{_CONTAINERS}.exists(c, {_AMOUNTS}.exists(m, m.exists(k, {_IS_GPU})))"
_GOVERNED: Final = (
    "namespaceObject.?metadata.?labels.orValue({})"
    f'.exists(k, k in ["{PROFILE_LABEL}", "{MODE_LABEL}"])'
)
"""For variables only: while match conditions are evaluated, an API server knows no namespace.

Source: kubernetes/apiserver, admission/plugin/webhook/matchconditions; seen on 1.37.2."""
_IS_DRIVER_MOUNT: Final = 'v.mountPath.matches("(^|/)nvidia-container-devices(/|$)")'
"""Wherever the folder is: a path has many spellings, and the name is nobody else's."""
_NOT_A_KUBELET: Final = '!("system:nodes" in request.?userInfo.?groups.orValue([]))'


def guard_policies(
    *, exempt: Sequence[str] = SYSTEM_NAMESPACES, writers: Sequence[str] = (CONTROLLER,)
) -> list[dict[str, Any]]:
    """Each policy followed by its binding.

    Args:
        exempt: Namespaces whose pods may name shares without a grant.
        writers: User names that may write status keys on pods that exist.
    """
    policies = [
        _status_keys(writers),
        _debug_containers(),
        _bindings(),
        _grants(exempt),
        _openings(exempt),
    ]
    return [manifest for policy in policies for manifest in (policy, _binding(policy))]


def _status_keys(writers: Iterable[str]) -> dict[str, Any]:
    listed = ", ".join(f'"{writer}"' for writer in writers)
    changed = f"""
    variables.before.filter(k, {_STATUS}
    && variables.after[?k].orValue("\\n") != variables.before[k])
    + variables.after.filter(k, {_STATUS} && !(k in variables.before))"""
    return _policy(
        "status-keys",
        operations=["UPDATE"],
        resources=["pods", "pods/status", "pods/ephemeralcontainers", "pods/resize"],
        conditions={"not-ours": f"!(request.userInfo.username in [{listed}])"},
        variables={
            "before": "oldObject.metadata.?annotations.orValue({})",
            "after": "object.metadata.?annotations.orValue({})",
            "changed": changed,
        },
        validations=[
            _validation(
                "variables.changed.size() == 0",
                '"annotation " + variables.changed.join(", ")'
                ' + " is written by gpu-sharing and cannot be added, changed or removed"',
            )
        ],
    )


def _debug_containers() -> dict[str, Any]:
    names = ", ".join(f'"{name}"' for name in sorted(DEBUG_VARIABLES))
    bad = f"""
    object.spec.?ephemeralContainers.orValue([]).filter(c, !(c.name in variables.old)
    && (variables.holds || variables.governed)
    && (c.?env.orValue([]).exists(e, e.name in [{names}])
    || c.?volumeMounts.orValue([]).exists(v, {_IS_DRIVER_MOUNT})
    || (variables.holds && c.?envFrom.orValue([]).size() > 0))).map(c, c.name)"""
    return _policy(
        "debug-containers",
        operations=["UPDATE"],
        resources=["pods/ephemeralcontainers"],
        variables={
            "governed": _GOVERNED,
            "holds": f"{_HAS_GRANT} || {_NAMES_A_GPU}",
            "old": "oldObject.spec.?ephemeralContainers.orValue([]).map(c, c.name)",
            "bad": bad,
        },
        validations=[
            _validation(
                "variables.bad.size() == 0",
                '"debug container " + variables.bad.join(", ") + " sets variables or mounts that'
                " can open GPUs which the pod has no share of; leave out NVIDIA_*, CUDA_*,"
                ' nvidia-container-devices and, beside a share, envFrom"',
            )
        ],
    )


def _bindings() -> dict[str, Any]:
    return _policy(
        "bindings",
        operations=["CREATE"],
        resources=["bindings", "pods/binding"],
        validations=[
            _validation(
                f"object.metadata.?annotations.orValue({{}}).all(k, !{_STATUS})",
                f'"annotations under {STATUS_PREFIX}/ are written by gpu-sharing; a binding, which'
                ' copies its own to the pod, may not carry any"',
            )
        ],
    )


def _openings(exempt: Sequence[str]) -> dict[str, Any]:
    """No pod of a governed namespace chooses devices past the device plugin, share or not.

    Most such pods name no GPU, so the webhook never sees them.
    """
    # One expression, since each call costs as much for each of a hostile pod's thousands of keys.
    prefixes = "|".join(one.replace(".", "[.]") for one in DEVICE_ANNOTATIONS)
    amounts = "|".join(one.replace(".", "[.]") for one in KAI_AMOUNTS)
    injecting = f"""
    variables.keys.filter(k, k.matches("^({prefixes})")
    && !(k.matches("^nvidia[.]cdi[.]k8s[.]io/.*({amounts})$")
    && !variables.keys[k].contains("=")))"""
    mounting = f"""
    {_CONTAINERS}.filter(c, c.?volumeMounts.orValue([]).exists(v, {_IS_DRIVER_MOUNT}))
    .map(c, c.name)"""
    return _policy(
        "openings",
        operations=["CREATE"],
        resources=["pods"],
        exempt=exempt,
        conditions={"not-a-kubelet": _NOT_A_KUBELET},
        variables={
            "governed": _GOVERNED,
            "keys": "object.metadata.?annotations.orValue({})",
            "injecting": injecting,
            "mounting": mounting,
        },
        validations=[
            _validation(
                "!variables.governed || variables.injecting.size() == 0",
                '"annotation " + variables.injecting.join(", ") + " injects devices past the'
                ' device plugin; remove it and ask by nvidia.com/gpu: 1"',
            ),
            _validation(
                "!variables.governed || variables.mounting.size() == 0",
                '"container " + variables.mounting.join(", ") + " mounts'
                " nvidia-container-devices, which chooses GPUs past the device plugin; remove the"
                ' mount and ask by nvidia.com/gpu: 1"',
            ),
        ],
    )


def _grants(exempt: Sequence[str]) -> dict[str, Any]:
    """Shares are given by policy alone, in every namespace; co-tenancy rests on it.

    The record is looked at by container and resource, spelled as ``webhook.grant`` spells it, so
    that a container which some other webhook added after ours does not hide behind its fellows.
    """
    record = '\'{"container":"\' + c.name + \'","resource":"\''
    ungranted = f"""
    {_CONTAINERS}.filter(c, {_AMOUNTS}.exists(m, m.exists(k, m[k] != "0" && {_IS_SHARE}
    && !variables.grants.contains({record} + (k == "{MILLI_GPU}" ? "" : k + '"')))))
    .map(c, c.name)"""
    return _policy(
        "grants",
        operations=["CREATE"],
        resources=["pods"],
        exempt=exempt,
        conditions={
            "not-a-kubelet": _NOT_A_KUBELET,
            "concerns-shares": f"{_HAS_GRANT} || {_NAMES_A_SHARE}",
        },
        variables={
            "grants": f'object.metadata.?annotations[?"{GRANTS_ANNOTATION}"].orValue("")',
            "ungranted": ungranted,
        },
        validations=[
            _validation(
                "variables.ungranted.size() == 0",
                '"container " + variables.ungranted.join(", ") + " names a share of gpu.sharing'
                f" that no policy granted; label the namespace {PROFILE_LABEL}, whose profile"
                ' enforces, and ask by nvidia.com/gpu: 1"',
            ),
            _validation(
                'object.spec.?nodeName.orValue("") == ""',
                '"spec.nodeName bypasses the scheduler, which counts shares; choose the node by'
                ' nodeSelector: {kubernetes.io/hostname: " + object.spec.nodeName + "}"',
            ),
        ],
    )


def _validation(expression: str, message: str) -> dict[str, str]:
    return {"expression": expression, "reason": "Forbidden", "messageExpression": message}


def _policy(
    name: str,
    *,
    operations: list[str],
    resources: list[str],
    validations: list[dict[str, str]],
    exempt: Sequence[str] = (),
    conditions: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    match: dict[str, Any] = {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": operations,
                "resources": resources,
                "scope": "Namespaced",
            }
        ]
    }
    if exempt:
        key = "kubernetes.io/metadata.name"
        rule = {"key": key, "operator": "NotIn", "values": list(exempt)}
        match["namespaceSelector"] = {"matchExpressions": [rule]}
    spec: dict[str, Any] = {"failurePolicy": "Fail", "matchConstraints": match}
    if conditions:
        spec["matchConditions"] = _expressions(conditions)
    if variables:
        spec["variables"] = _expressions(variables)
    spec["validations"] = validations
    return _manifest("ValidatingAdmissionPolicy", name, spec)


def _expressions(named: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "expression": " ".join(named[name].split())} for name in named]


def _binding(policy: Mapping[str, Any]) -> dict[str, Any]:
    name = policy["metadata"]["name"]
    spec = {"policyName": name, "validationActions": ["Deny"]}
    return _manifest("ValidatingAdmissionPolicyBinding", name.removeprefix("gpu-sharing-"), spec)


def _manifest(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {
            "name": f"gpu-sharing-{name}",
            "labels": {"app.kubernetes.io/name": "gpu-sharing"},
        },
        "spec": spec,
    }


def files() -> dict[str, str]:
    """Texts by file name: each policy with its binding."""
    manifests = guard_policies()
    pairs = zip(manifests[::2], manifests[1::2], strict=True)
    return {
        policy["metadata"]["name"].removeprefix("gpu-sharing-") + ".yaml": render(policy)
        + "---\n"
        + render(binding)
        for policy, binding in pairs
    }


def main() -> None:
    """Write the policies into a folder."""
    parser = argparse.ArgumentParser(description="Render the policies that guard gpu-sharing.")
    parser.add_argument("--write", metavar="DIR", type=Path, required=True)
    folder: Path = parser.parse_args().write
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
