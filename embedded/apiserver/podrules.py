"""Rules for pods, after mutation: what the API server's validation refuses (pure).

Source: ``pkg/apis/core/validation/validation.go``. Covered is what admission can get wrong:
containers, their names, resources and restart policies, environment, volumes. What may change
in a pod that exists is in ``podupdates``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from embedded.apiserver.metadata import (
    SUBDOMAIN_TEXT,
    dns_label_causes,
    is_subdomain,
    label_causes,
    qualified_name_problem,
)
from embedded.apiserver.objects import Json, entries, section
from embedded.apiserver.quantities import amount
from embedded.apiserver.status import (
    Cause,
    duplicate,
    field_forbidden,
    invalid_value,
    not_supported,
    required,
)
from sharing.errors import QuantityError

_HUGE: Final = "hugepages-"
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
_EPHEMERAL_FORBIDDEN: Final = (
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resources",
)
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES: Final = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_MOST_SECONDS: Final = 2**31 - 1

_STANDARD_TEXT: Final = "must be a standard resource type or fully qualified"
_STANDARD_FOR_EXTENDED: Final = "doesn't follow extended resource name standard"
_STANDARD_FOR_CONTAINERS: Final = "must be a standard resource for containers"


def is_extended(name: str) -> bool:
    """IsExtendedResourceName: domain-prefixed, outside kubernetes.io, not ``requests.…``."""
    domain, slash, _ = name.partition("/")
    native = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return bool(slash) and not native and not name.startswith("requests.")


def _is_native(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    return not slash or domain == "kubernetes.io" or domain.endswith(".kubernetes.io")


def pod_causes(pod: Json) -> list[Cause]:
    """What is wrong with a new pod."""
    spec = section(pod, "spec")
    if spec.get("ephemeralContainers"):
        return [field_forbidden("spec.ephemeralContainers", "cannot be set on create")]
    return spec_causes(spec, "spec")


def template_causes(template: Json, field: str) -> list[Cause]:
    """What is wrong with a pod template."""
    labels = section(template, "metadata").get("labels") or {}
    causes = label_causes(labels, f"{field}.metadata.labels")
    return causes + spec_causes(section(template, "spec"), f"{field}.spec")


def spec_causes(spec: Json, field: str) -> list[Cause]:
    """What is wrong with a pod spec."""
    containers = entries(spec, "containers")
    causes: list[Cause] = []
    if not containers:
        causes.append(required(f"{field}.containers"))
    volumes = {str(volume.get("name")) for volume in entries(spec, "volumes")}
    causes += _volume_causes(entries(spec, "volumes"), f"{field}.volumes")
    taken: set[str] = set()
    for group in ("containers", "initContainers"):
        for index, container in enumerate(entries(spec, group)):
            where = f"{field}.{group}[{index}]"
            causes += _container_causes(container, where, volumes, init=group == "initContainers")
            causes += _name_taken(container, where, taken)
    causes += ephemeral_causes(spec, field, taken)
    causes += _policy_causes(spec, field)
    return causes + _pod_level_causes(spec, field)


def _policy_causes(spec: Json, field: str) -> list[Cause]:
    causes = []
    for key, choices in (("restartPolicy", _RESTART_POLICIES), ("dnsPolicy", _DNS_POLICIES)):
        if spec.get(key) not in choices:
            causes.append(not_supported(f"{field}.{key}", spec.get(key), choices))
    for key in ("nodeName", "runtimeClassName", "priorityClassName", "serviceAccountName"):
        name = spec.get(key)
        if name and not is_subdomain(str(name)):
            causes.append(invalid_value(f"{field}.{key}", name, SUBDOMAIN_TEXT))
    deadline = spec.get("activeDeadlineSeconds")
    if isinstance(deadline, int) and not 1 <= deadline <= _MOST_SECONDS:
        why = f"must be between 1 and {_MOST_SECONDS}, inclusive"
        causes.append(invalid_value(f"{field}.activeDeadlineSeconds", deadline, why))
    causes += toleration_causes(entries(spec, "tolerations"), f"{field}.tolerations")
    return causes + label_causes(spec.get("nodeSelector") or {}, f"{field}.nodeSelector")


def toleration_causes(tolerations: list[Json], field: str) -> list[Cause]:
    """What is wrong with tolerations."""
    return [
        not_supported(f"{field}[{n}].operator", each["operator"], ("Equal", "Exists"))
        for n, each in enumerate(tolerations)
        if each.get("operator") not in {None, "", "Equal", "Exists", "Gt", "Lt"}
    ]


def _pod_level_causes(spec: Json, field: str) -> list[Cause]:
    """Pod-level resources take cpu, memory and huge pages only."""
    return [
        not_supported(f"{field}.resources.{part}[{name}]", name, ("cpu", "hugepages-", "memory"))
        for part in ("limits", "requests")
        for name in section(spec, "resources", part)
        if name not in _NATIVE[:2] and not name.startswith("hugepages-")
    ]


def _name_taken(container: Json, where: str, taken: set[str]) -> list[Cause]:
    name = str(container.get("name") or "")
    if name and name in taken:
        return [duplicate(f"{where}.name", name)]
    taken.add(name)
    return []


def _container_causes(container: Json, where: str, volumes: set[str], *, init: bool) -> list[Cause]:
    causes = dns_label_causes(str(container.get("name") or ""), f"{where}.name")
    if not container.get("image"):
        causes.append(required(f"{where}.image"))
    policy = container.get("imagePullPolicy")
    if container.get("image") and policy not in _PULL_POLICIES:
        causes.append(not_supported(f"{where}.imagePullPolicy", policy, _PULL_POLICIES))
    restart = container.get("restartPolicy")
    if restart is not None and restart not in _RESTART_POLICIES:
        causes.append(not_supported(f"{where}.restartPolicy", restart, _RESTART_POLICIES))
    if init and restart != "Always":
        causes += [
            field_forbidden(
                f"{where}.{probe}",
                "may not be set for init containers without restartPolicy=Always",
            )
            for probe in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
            if container.get(probe)
        ]
    causes += _env_causes(entries(container, "env"), f"{where}.env")
    causes += _mount_causes(entries(container, "volumeMounts"), f"{where}.volumeMounts", volumes)
    return causes + resource_causes(section(container, "resources"), f"{where}.resources")


def _env_causes(env: list[Json], where: str) -> list[Cause]:
    causes = []
    for index, variable in enumerate(env):
        name = variable.get("name")
        if not name:
            causes.append(required(f"{where}[{index}].name"))
        elif "=" in name or not str(name).isprintable():
            causes.append(
                invalid_value(
                    f"{where}[{index}].name",
                    name,
                    "environment variable names must be printable and must not contain '='",
                )
            )
        if variable.get("value") and variable.get("valueFrom"):
            causes.append(
                invalid_value(
                    f"{where}[{index}].valueFrom",
                    "",
                    "may not be specified when `value` is not empty",
                )
            )
    return causes


def _mount_causes(mounts: list[Json], where: str, volumes: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        name, path = str(mount.get("name") or ""), str(mount.get("mountPath") or "")
        if not name:
            causes.append(required(f"{where}[{index}].name"))
        elif name not in volumes:
            causes.append(
                Cause(
                    field=f"{where}[{index}].name",
                    reason="FieldValueNotFound",
                    message=f'Not found: "{name}"',
                )
            )
        if not path:
            causes.append(required(f"{where}[{index}].mountPath"))
        elif path in seen:
            causes.append(invalid_value(f"{where}[{index}].mountPath", path, "must be unique"))
        seen.add(path)
    return causes


def _volume_causes(volumes: list[Json], where: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        name = str(volume.get("name") or "")
        causes += dns_label_causes(name, f"{where}[{index}].name")
        if name and name in seen:
            causes.append(duplicate(f"{where}[{index}].name", name))
        seen.add(name)
        sources = [key for key in volume if key != "name"]
        causes += [
            field_forbidden(f"{where}[{index}].{extra}", "may not specify more than 1 volume type")
            for extra in sorted(sources)[1:]
        ]
    return causes


def resource_causes(resources: Json, where: str) -> list[Cause]:
    """ValidateContainerResourceRequirements."""
    limits, requests = section(resources, "limits"), section(resources, "requests")
    causes: list[Cause] = []
    for part, values in (("limits", limits), ("requests", requests)):
        for name, value in values.items():
            field = f"{where}.{part}[{name}]"
            causes += _name_causes(name, field) or _value_causes(name, value, field)
    if causes:
        return causes + _huge_causes(limits, requests, where)
    for name, request in requests.items():
        causes += _pair_causes(name, request, limits.get(name), where)
    return causes + _huge_causes(limits, requests, where)


def _name_causes(name: str, field: str) -> list[Cause]:
    domain, slash, own = name.rpartition("/")
    problems = [problem] if (problem := qualified_name_problem(name)) else []
    if slash and not own:
        problems.append(qualified_name_problem(f"{domain}/-"))
    extended = slash and not _is_native(name)
    if extended and (problems or not is_extended(name)):
        problems.append(_STANDARD_FOR_EXTENDED)
    if problems:
        return [invalid_value(field, name, problem) for problem in problems]
    if "/" not in name:
        if name in _NATIVE or name.startswith("hugepages-"):
            return []
        return [
            invalid_value(field, name, _STANDARD_TEXT),
            invalid_value(field, name, _STANDARD_FOR_CONTAINERS),
        ]
    # Quota writes requests.NAME, so the longer name must be a name as well.
    if problem := qualified_name_problem(f"requests.{name}"):
        return [invalid_value(field, name, problem)]
    return []


def _value_causes(name: str, value: Any, field: str) -> list[Cause]:
    try:
        number = amount(str(value))
    except QuantityError as error:
        return [invalid_value(field, value, error.wrong)]
    if number < 0:
        return [invalid_value(field, value, "must be greater than or equal to 0")]
    if name.startswith(_HUGE) and number % amount(name.removeprefix(_HUGE)):
        return [invalid_value(field, value, f"{value} is not positive integer multiple of {name}")]
    if is_extended(name) and number.denominator != 1:
        return [invalid_value(field, value, "must be an integer")]
    return []


def _huge_causes(limits: Json, requests: Json, where: str) -> list[Cause]:
    named = {*limits, *requests}
    if any(name.startswith(_HUGE) for name in named) and not named & {"cpu", "memory"}:
        return [field_forbidden(where, "HugePages require cpu or memory")]
    return []


def _pair_causes(name: str, request: Any, limit: Any, where: str) -> list[Cause]:
    field = f"{where}.requests"
    overcommit = not is_extended(name) and not name.startswith("hugepages-")
    if limit is None:
        if overcommit:
            return []
        return [required(f"{where}.limits", "Limit must be set for non overcommitable resources")]
    if not overcommit and amount(str(request)) != amount(str(limit)):
        return [invalid_value(field, str(request), f"must be equal to {name} limit of {limit}")]
    if amount(str(request)) > amount(str(limit)):
        return [
            invalid_value(
                field, str(request), f"must be less than or equal to {name} limit of {limit}"
            )
        ]
    return []


def ephemeral_causes(spec: Json, field: str, taken: Iterable[str]) -> list[Cause]:
    """What is wrong with the ephemeral containers of a pod."""
    causes: list[Cause] = []
    names = set(taken)
    for index, container in enumerate(entries(spec, "ephemeralContainers")):
        where = f"{field}.ephemeralContainers[{index}]"
        causes += dns_label_causes(str(container.get("name") or ""), f"{where}.name")
        causes += _name_taken(container, where, names)
        if not container.get("image"):
            causes.append(required(f"{where}.image"))
        causes += [
            field_forbidden(f"{where}.{key}", "cannot be set for an Ephemeral Container")
            for key in _EPHEMERAL_FORBIDDEN
            if container.get(key)
        ]
        causes += _env_causes(entries(container, "env"), f"{where}.env")
    return causes
