"""How lists of the built-in types merge.

Source: the ``patchMergeKey``, ``listType`` and ``listMapKey`` markers in k8s.io/api. A list
that is not named here is replaced as a whole.
"""

from __future__ import annotations

from typing import Final

# type.field: (key of a strategic merge patch, keys of server-side apply)
_KEYED: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "V1PodSpec.containers": ("name", ("name",)),
    "V1PodSpec.initContainers": ("name", ("name",)),
    "V1PodSpec.ephemeralContainers": ("name", ("name",)),
    "V1PodSpec.volumes": ("name", ("name",)),
    "V1PodSpec.imagePullSecrets": ("name", ("name",)),
    "V1PodSpec.hostAliases": ("ip", ("ip",)),
    "V1PodSpec.resourceClaims": ("name", ("name",)),
    "V1PodSpec.schedulingGates": ("name", ("name",)),
    "V1PodSpec.topologySpreadConstraints": (
        "topologyKey",
        ("topologyKey", "whenUnsatisfiable"),
    ),
    "V1Container.env": ("name", ("name",)),
    "V1Container.ports": ("containerPort", ("containerPort", "protocol")),
    "V1Container.volumeMounts": ("mountPath", ("mountPath",)),
    "V1Container.volumeDevices": ("devicePath", ("devicePath",)),
    "V1EphemeralContainer.env": ("name", ("name",)),
    "V1EphemeralContainer.ports": ("containerPort", ("containerPort", "protocol")),
    "V1EphemeralContainer.volumeMounts": ("mountPath", ("mountPath",)),
    "V1EphemeralContainer.volumeDevices": ("devicePath", ("devicePath",)),
    "V1ResourceRequirements.claims": ("", ("name",)),
    "V1PodStatus.conditions": ("type", ("type",)),
    "V1PodStatus.podIPs": ("ip", ("ip",)),
    "V1PodStatus.resourceClaimStatuses": ("name", ("name",)),
    "V1ObjectMeta.ownerReferences": ("uid", ("uid",)),
    "V1NodeStatus.conditions": ("type", ("type",)),
    "V1NodeStatus.addresses": ("type", ("type",)),
    "V1NamespaceStatus.conditions": ("type", ("type",)),
    "V1ServiceSpec.ports": ("port", ("port", "protocol")),
    "V1ServiceStatus.conditions": ("type", ("type",)),
    "V1ServiceAccount.secrets": ("name", ("name",)),
    "V1DeploymentStatus.conditions": ("type", ("type",)),
    "V1ReplicaSetStatus.conditions": ("type", ("type",)),
    "V1StatefulSetStatus.conditions": ("type", ("type",)),
    "V1DaemonSetStatus.conditions": ("type", ("type",)),
    "V1JobStatus.conditions": ("type", ()),
    "V1PodDisruptionBudgetStatus.conditions": ("type", ("type",)),
    "V1CustomResourceDefinitionStatus.conditions": ("", ("type",)),
    "V1MutatingWebhookConfiguration.webhooks": ("name", ("name",)),
    "V1ValidatingWebhookConfiguration.webhooks": ("name", ("name",)),
    "V1MutatingWebhook.matchConditions": ("name", ("name",)),
    "V1ValidatingWebhook.matchConditions": ("name", ("name",)),
    "V1ValidatingAdmissionPolicySpec.matchConditions": ("name", ("name",)),
    "V1ValidatingAdmissionPolicySpec.variables": ("name", ("name",)),
}

# Lists of plain values that merge as sets.
_SETS: Final = frozenset(
    {"V1ObjectMeta.finalizers", "V1NamespaceSpec.finalizers", "V1NodeSpec.podCIDRs"}
)

# Mappings that are replaced as a whole by server-side apply (structType/mapType atomic).
_ATOMIC: Final = frozenset(
    {
        "V1LabelSelector",
        "V1NodeSelector",
        "V1ObjectReference",
        "V1LocalObjectReference",
        "V1SecretKeySelector",
        "V1ConfigMapKeySelector",
        "V1ObjectFieldSelector",
        "V1ResourceFieldSelector",
        "V1OwnerReference",
        "V1NodeSelectorTerm",
        "V1TypedLocalObjectReference",
    }
)
_ATOMIC_MAPS: Final = frozenset({"V1PodSpec.nodeSelector", "V1Service.selector"})


def patch_key(owner: str, field: str) -> str:
    """The merge key of a list in a strategic merge patch; empty where lists are replaced."""
    return _KEYED.get(f"{owner}.{field}", ("", ()))[0]


def apply_keys(owner: str, field: str) -> tuple[str, ...]:
    """The keys of a list in server-side apply; empty where the list is atomic."""
    return _KEYED.get(f"{owner}.{field}", ("", ()))[1]


def is_set(owner: str, field: str) -> bool:
    """Whether a list of plain values merges as a set."""
    return f"{owner}.{field}" in _SETS


def is_atomic(type_name: str, owner: str = "", field: str = "") -> bool:
    """Whether server-side apply treats the mapping as one value."""
    return type_name in _ATOMIC or f"{owner}.{field}" in _ATOMIC_MAPS
