"""Which collections of the Kubernetes API we talk to, and how their addresses are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from sharing.errors import InputError, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One collection: enough to build an address and an object's head.

    Attributes:
        group: API group; empty for the core group.
        version: API version within the group, such as ``v1``.
        kind: Name of one object, as in ``kind: Pod``.
        plural: Name of the collection in addresses.
        namespaced: Whether objects live in namespaces.
    """

    kind: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The address below the server's root, escaped.

        An empty namespace of a namespaced kind means the collection over all namespaces.

        Raises:
            InputError: If an object of a namespaced kind is named without its namespace.
        """
        if name and self.namespaced and not namespace:
            raise InputError(
                f"{self.kind} {shown(name)}", "no namespace was given", fix="name its namespace"
            )
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        # A name of dots only would be taken for a step in the path.
        return "/" + "/".join(
            quote(part, safe="") if part.strip(".") else part.replace(".", "%2E") for part in parts
        )

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS: Final = Kind(kind="Pod", plural="pods")
NODES: Final = Kind(kind="Node", plural="nodes", namespaced=False)
NAMESPACES: Final = Kind(kind="Namespace", plural="namespaces", namespaced=False)
EVENTS: Final = Kind(kind="Event", plural="events")
SECRETS: Final = Kind(kind="Secret", plural="secrets")
CONFIG_MAPS: Final = Kind(kind="ConfigMap", plural="configmaps")
SERVICE_ACCOUNTS: Final = Kind(kind="ServiceAccount", plural="serviceaccounts")
RESOURCE_QUOTAS: Final = Kind(kind="ResourceQuota", plural="resourcequotas")
DEPLOYMENTS: Final = Kind(kind="Deployment", plural="deployments", group="apps")
REPLICA_SETS: Final = Kind(kind="ReplicaSet", plural="replicasets", group="apps")
STATEFUL_SETS: Final = Kind(kind="StatefulSet", plural="statefulsets", group="apps")
DAEMON_SETS: Final = Kind(kind="DaemonSet", plural="daemonsets", group="apps")
JOBS: Final = Kind(kind="Job", plural="jobs", group="batch")
CRON_JOBS: Final = Kind(kind="CronJob", plural="cronjobs", group="batch")
LEASES: Final = Kind(kind="Lease", plural="leases", group="coordination.k8s.io")
PRIORITY_CLASSES: Final = Kind(
    kind="PriorityClass", plural="priorityclasses", group="scheduling.k8s.io", namespaced=False
)
CRDS: Final = Kind(
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    group="apiextensions.k8s.io",
    namespaced=False,
)
MUTATING_WEBHOOKS: Final = Kind(
    kind="MutatingWebhookConfiguration",
    plural="mutatingwebhookconfigurations",
    group="admissionregistration.k8s.io",
    namespaced=False,
)
VALIDATING_WEBHOOKS: Final = Kind(
    kind="ValidatingWebhookConfiguration",
    plural="validatingwebhookconfigurations",
    group="admissionregistration.k8s.io",
    namespaced=False,
)

SHARING_PROFILES: Final = Kind(
    kind="SharingProfile",
    plural="sharingprofiles",
    group="gpu.sharing",
    version="v1alpha1",
    namespaced=False,
)
GPU_LAYOUTS: Final = Kind(
    kind="GPULayout",
    plural="gpulayouts",
    group="gpu.sharing",
    version="v1alpha1",
    namespaced=False,
)
GPU_NODES: Final = Kind(
    kind="GPUNode", plural="gpunodes", group="gpu.sharing", version="v1alpha1", namespaced=False
)
