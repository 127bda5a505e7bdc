"""Which resources exist: a table of the built-in ones and the registry that CRDs join.

A row is everything that discovery, routing, storage and admission need to know about a
resource; what objects of it look like is in ``builtin`` (types) and ``schema`` (CRDs).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

STANDARD_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKind:
    """One resource in one API version.

    Attributes:
        type_name: Row of the built-in type table; empty for custom resources.
        subresources: Name of each subresource with the kind that it takes.
        columns: ``additionalPrinterColumns`` of a custom resource.
        json_schema: The structural schema of a custom resource.
        storage_version: The version that objects are stored in.
        has_generation: Whether ``metadata.generation`` counts changes of the spec.
        selectable: ``selectableFields`` of a custom resource (name → JSON path).
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = STANDARD_VERBS
    type_name: str = ""
    list_kind: str = ""
    storage_version: str = ""
    has_generation: bool = False
    columns: tuple[Mapping[str, Any], ...] = ()
    json_schema: Mapping[str, Any] = field(default_factory=dict)
    custom: bool = False
    selectable: Mapping[str, str] = field(default_factory=dict)

    @property
    def api_version(self) -> str:
        """``group/version``, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage_api_version(self) -> str:
        """The apiVersion that stored objects carry."""
        version = self.storage_version or self.version
        return f"{self.group}/{version}" if self.group else version

    @property
    def qualified(self) -> str:
        """``plural.group``, as messages name it; the key of its storage too."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        """Whether status is written through a subresource of its own."""
        return "status" in self.subresources


def _row(  # noqa: PLR0913, PLR0917 - a table row, columns in reading order
    api_version: str,
    kind: str,
    plural: str,
    short: str = "",
    subresources: str = "",
    *,
    namespaced: bool = True,
    generation: bool = False,
    categories: str = "",
    type_name: str = "",
    verbs: str = "",
) -> ResourceKind:
    group, _, version = api_version.rpartition("/")
    return ResourceKind(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=namespaced,
        short_names=tuple(short.split()),
        categories=tuple(categories.split()),
        subresources=tuple(subresources.split()),
        type_name=type_name or f"V1{kind}",
        list_kind=f"{kind}List",
        has_generation=generation,
        verbs=tuple(verbs.split()) or STANDARD_VERBS,
    )


_ADMISSION: Final = "admissionregistration.k8s.io/v1"

BUILTIN: Final[tuple[ResourceKind, ...]] = (
    _row("v1", "Namespace", "namespaces", "ns", "status finalize", namespaced=False),
    _row("v1", "Node", "nodes", "no", "status", namespaced=False),
    _row(
        "v1",
        "Pod",
        "pods",
        "po",
        "status binding eviction ephemeralcontainers",
        categories="all",
        generation=True,
    ),
    _row("v1", "Event", "events", "ev", type_name="CoreV1Event"),
    _row("v1", "Secret", "secrets"),
    _row("v1", "ConfigMap", "configmaps", "cm"),
    _row("v1", "Service", "services", "svc", "status", categories="all"),
    _row("v1", "ServiceAccount", "serviceaccounts", "sa"),
    _row("v1", "ResourceQuota", "resourcequotas", "quota", "status"),
    _row(
        "v1",
        "ReplicationController",
        "replicationcontrollers",
        "rc",
        "status scale",
        categories="all",
        generation=True,
    ),
    _row("v1", "PodTemplate", "podtemplates"),
    _row("v1", "Binding", "bindings", verbs="create"),
    _row(
        "apps/v1",
        "Deployment",
        "deployments",
        "deploy",
        "status scale",
        categories="all",
        generation=True,
    ),
    _row(
        "apps/v1",
        "StatefulSet",
        "statefulsets",
        "sts",
        "status scale",
        categories="all",
        generation=True,
    ),
    _row("apps/v1", "DaemonSet", "daemonsets", "ds", "status", categories="all", generation=True),
    _row(
        "apps/v1",
        "ReplicaSet",
        "replicasets",
        "rs",
        "status scale",
        categories="all",
        generation=True,
    ),
    _row("batch/v1", "Job", "jobs", "", "status", categories="all", generation=True),
    _row("batch/v1", "CronJob", "cronjobs", "cj", "status", categories="all", generation=True),
    _row("coordination.k8s.io/v1", "Lease", "leases"),
    _row(
        "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", "status", generation=True
    ),
    _row(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        "priorityclasses",
        "pc",
        namespaced=False,
        generation=True,
    ),
    _row("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", namespaced=False),
    _row(
        _ADMISSION,
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        namespaced=False,
        generation=True,
        categories="api-extensions",
    ),
    _row(
        _ADMISSION,
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        namespaced=False,
        generation=True,
        categories="api-extensions",
    ),
    _row(
        _ADMISSION,
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        "",
        "status",
        namespaced=False,
        generation=True,
        categories="api-extensions",
    ),
    _row(
        _ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        namespaced=False,
        generation=True,
        categories="api-extensions",
    ),
    _row(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "crd crds",
        "status",
        namespaced=False,
        generation=True,
        categories="api-extensions",
    ),
)

SUBRESOURCE_KINDS: Final[Mapping[str, tuple[str, str, str]]] = {
    # (group, version, kind) of the body that the subresource takes, and its type row by name
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
}


class KindTable:
    """The resources that are served now: the built-in ones and those of CRDs."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], ResourceKind] = {
            (kind.group, kind.version, kind.plural): kind for kind in BUILTIN
        }

    def find(self, group: str, version: str, plural: str) -> ResourceKind | None:
        """The resource at a path, or nothing."""
        return self._by_path.get((group, version, plural))

    def is_served(self, group: str, version: str) -> bool:
        """Whether any resource of a group is served in a version."""
        return any(key[:2] == (group, version) for key in self._by_path)

    def named(self, plural: str, group: str = "") -> ResourceKind:
        """A resource by plural and group, any version; for code that knows it exists."""
        for kind in self._by_path.values():
            if kind.plural == plural and kind.group == group:
                return kind
        raise LookupError(f"{plural}.{group}")

    def of_object(self, api_version: str, kind_name: str) -> ResourceKind | None:
        """The resource of an object, or nothing."""
        for kind in self._by_path.values():
            if kind.kind == kind_name and kind.api_version == api_version:
                return kind
        return None

    def __iter__(self) -> Iterator[ResourceKind]:
        return iter(tuple(self._by_path.values()))

    def replace_custom(self, group: str, plural: str, versions: tuple[ResourceKind, ...]) -> None:
        """Serve exactly these versions of a custom resource; none to stop serving it."""
        for path in [p for p, k in self._by_path.items() if k.custom and p[0] == group]:
            if path[2] == plural:
                del self._by_path[path]
        for kind in versions:
            self._by_path[kind.group, kind.version, kind.plural] = kind
