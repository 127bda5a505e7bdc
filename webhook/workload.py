"""Workloads: objects that hold pod templates.

The API server refuses a fractional ``nvidia.com/gpu: 250m`` in a template, since it validates
templates without our changes to the pods made from them. So the quantity becomes the annotation
form there: ``nvidia.com/gpu: 1`` and ``<container>.gpu.sharing/fraction: "0.25"``. What we wrote
is recorded on the workload, so that a file applied again, or changed, is understood as its
author's word over ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import orjson

from sharing.errors import InputError
from sharing.names import FRACTION, GPU, PREFIX
from webhook import explain
from webhook.applied import applied_to
from webhook.astray import keys_astray
from webhook.container import Container, containers_of, mapping
from webhook.fraction import parse_fraction
from webhook.patch import PatchOperation, remove_members, replace, set_members
from webhook.resources import amount_of

FRACTIONS_ANNOTATION: Final = "status.gpu.sharing/fractions"
"""On a workload: the fractions that we wrote into its templates, as JSON."""

_APPLIED: Final = "applied"
"""In the record: which file had been applied when we wrote it."""

TemplatePath = tuple[str, ...]
"""Keys that lead to a template; ``*`` stands for each member of a list or map."""

_PLAIN: Final[TemplatePath] = ("spec", "template")
TEMPLATE_PATHS: Final[Mapping[str, tuple[TemplatePath, ...]]] = {
    "Deployment": (_PLAIN,),
    "StatefulSet": (_PLAIN,),
    "DaemonSet": (_PLAIN,),
    "ReplicaSet": (_PLAIN,),
    "ReplicationController": (_PLAIN,),
    "Job": (_PLAIN,),
    "CronJob": (("spec", "jobTemplate", "spec", "template"),),
    "PodTemplate": (("template",),),
    "JobSet": (("spec", "replicatedJobs", "*", "template", "spec", "template"),),
    "LeaderWorkerSet": (
        ("spec", "leaderWorkerTemplate", "leaderTemplate"),
        ("spec", "leaderWorkerTemplate", "workerTemplate"),
    ),
    "PyTorchJob": (("spec", "pytorchReplicaSpecs", "*", "template"),),
    "TFJob": (("spec", "tfReplicaSpecs", "*", "template"),),
    "MPIJob": (("spec", "mpiReplicaSpecs", "*", "template"),),
    "XGBoostJob": (("spec", "xgbReplicaSpecs", "*", "template"),),
    "PaddleJob": (("spec", "paddleReplicaSpecs", "*", "template"),),
    "JAXJob": (("spec", "jaxReplicaSpecs", "*", "template"),),
    "Rollout": (_PLAIN,),
    "RayCluster": (
        ("spec", "headGroupSpec", "template"),
        ("spec", "workerGroupSpecs", "*", "template"),
    ),
    "RayJob": (
        ("spec", "rayClusterSpec", "headGroupSpec", "template"),
        ("spec", "rayClusterSpec", "workerGroupSpecs", "*", "template"),
    ),
    "RayService": (
        ("spec", "rayClusterConfig", "headGroupSpec", "template"),
        ("spec", "rayClusterConfig", "workerGroupSpecs", "*", "template"),
    ),
}
"""Where each kind keeps its templates."""

_DIGITS: Final = 10**9
_MOST_CONTAINERS: Final = 2048
"""Of one template that are looked at; the API server refuses fractions in larger ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One pod template and where it stands."""

    path: str
    """JSON pointer inside the workload."""
    raw: dict[str, Any]

    @property
    def field(self) -> str:
        """The path as people write it: ``spec.workerGroupSpecs[0].template``."""
        names = (f"[{key}]" if key.isdecimal() else f".{key}" for key in self.path.split("/")[1:])
        return "".join(names).lstrip(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class Legalised:
    """A workload as it will be stored."""

    templates: tuple[dict[str, Any], ...]
    """Its pod templates, fractions made legal; not the review's own objects where changed."""
    operations: tuple[PatchOperation, ...] = ()
    warnings: tuple[str, ...] = ()


def templates_of(
    workload: Mapping[str, Any],
    paths: Mapping[str, tuple[TemplatePath, ...]] = TEMPLATE_PATHS,
) -> list[Template]:
    """The pod templates of a workload; none for a kind that holds none.

    Args:
        workload: The whole object.
        paths: Where kinds keep their templates; a kind with its group outranks the bare kind.
    """
    kind, version = workload.get("kind"), workload.get("apiVersion")
    if not isinstance(kind, str):
        return []
    group = version.rpartition("/")[0] if isinstance(version, str) else ""
    found: list[Template] = []
    for path in paths.get(f"{kind}.{group}") or paths.get(kind, ()):
        found += _walk(workload, path, "")
    return found


def _walk(value: Any, path: TemplatePath, pointer: str) -> Iterable[Template]:
    if not path:
        if isinstance(value, dict):
            yield Template(path=pointer, raw=value)
        return
    key, rest = path[0], path[1:]
    if key == "*" and isinstance(value, list):
        for index, member in enumerate(value):
            yield from _walk(member, rest, f"{pointer}/{index}")
    elif key == "*" and isinstance(value, dict):
        for name in sorted(value):
            yield from _walk(value[name], rest, f"{pointer}/{_escaped(name)}")
    elif isinstance(value, dict) and key in value:
        yield from _walk(value[key], rest, f"{pointer}/{key}")


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def legalise(
    workload: dict[str, Any], templates: Sequence[Template], *, rewrites: bool
) -> Legalised:
    """What the templates will be once their fractions are made legal.

    Args:
        workload: The whole object.
        templates: Its templates.
        rewrites: Whether we may change anything.
    """
    raws = tuple(template.raw for template in templates)
    annotations = mapping(mapping(workload, "metadata"), "annotations")
    astray = keys_astray(workload, {template.path: template.raw for template in templates})
    warnings = tuple(map(explain.misplaced, astray))
    if not rewrites:
        return Legalised(templates=raws, warnings=warnings)
    known, digest = _read(annotations.get(FRACTIONS_ANNOTATION))
    applied = applied_to(annotations, digest)
    written: dict[str, dict[str, str]] = {}
    operations: list[PatchOperation] = []
    changed = []
    for template in templates:
        if len(containers_of(template.raw)) > _MOST_CONTAINERS:
            changed.append(template.raw)
            continue
        ours = known.get(template.path, {})
        whole = applied.whole_in(template.path) if ours and applied.value else frozenset()
        after, fractions, done = _normalise(template, ours, whole)
        changed.append(after)
        operations += done
        if fractions:
            written[template.path] = fractions
    operations += _record(workload, annotations, written, applied.digest)
    return Legalised(templates=tuple(changed), operations=tuple(operations), warnings=warnings)


def _record(
    workload: Mapping[str, Any],
    annotations: Mapping[str, Any],
    written: Mapping[str, Any],
    digest: str,
) -> Iterable[PatchOperation]:
    metadata = workload.get("metadata")
    if not isinstance(metadata, dict):
        return
    if written:
        record = {**written, _APPLIED: digest} if digest else written
        text = orjson.dumps(record, option=orjson.OPT_SORT_KEYS).decode()
        current = metadata.get("annotations")
        yield from set_members("/metadata/annotations", current, {FRACTIONS_ANNOTATION: text})
    else:
        yield from remove_members("/metadata/annotations", annotations, [FRACTIONS_ANNOTATION])


def _normalise(
    template: Template, known: Mapping[str, str], whole: frozenset[str]
) -> tuple[dict[str, Any], dict[str, str], list[PatchOperation]]:
    """One template with legal amounts, the fractions that stand in it by us, and the patch.

    Args:
        template: The template.
        known: The fractions that we wrote into it, by container.
        whole: Containers for which a file that was applied since then asks for whole GPUs.
    """
    raw = template.raw
    annotations = dict(mapping(mapping(raw, "metadata"), "annotations"))
    before = dict(annotations)
    fractions: dict[str, str] = {}
    operations: list[PatchOperation] = []
    spec = _with_own_lists(mapping(raw, "spec"))
    containers = containers_of(raw)
    for name in known.keys() - {container.name for container in containers}:
        # The author took the whole container out of the file, or renamed it.
        if annotations.get(f"{name}.{PREFIX}/{FRACTION}") == known[name]:
            del annotations[f"{name}.{PREFIX}/{FRACTION}"]
    for container in containers:
        key = f"{container.name}.{PREFIX}/{FRACTION}"
        ours = known.get(container.name) if known else None
        is_ours = ours is not None and annotations.get(key) == ours
        part = _part(container)
        if part is not None and container.name and (is_ours or key not in annotations):
            annotations[key] = fractions[container.name] = _decimal(part)
        if part is not None and _says(annotations.get(key), part):
            operations += _whole(template.path, container)
            _put(spec, container)
        elif is_ours and container.name in whole:
            del annotations[key]
        elif is_ours and _names_gpu(container):
            fractions[container.name] = annotations[key]
        elif is_ours:
            # The author took the GPU out of the file; what we wrote for it goes too.
            del annotations[key]
    if annotations == before and not operations:
        return raw, fractions, []
    metadata = {**mapping(raw, "metadata"), "annotations": annotations}
    operations += _annotations(template, before, annotations)
    return {**raw, "metadata": metadata, "spec": spec}, fractions, operations


def _annotations(
    template: Template, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterable[PatchOperation]:
    path = f"{template.path}/metadata"
    metadata = template.raw.get("metadata")
    new = {key: after[key] for key in after if after[key] != before.get(key)}
    if not isinstance(metadata, dict):
        if new:
            yield from set_members(path, None, {"annotations": new})
        return
    gone = [key for key in before if key not in after]
    yield from remove_members(f"{path}/annotations", before, gone)
    yield from set_members(f"{path}/annotations", metadata.get("annotations"), new)


def _amounts(container: Container) -> Iterable[tuple[str, Any]]:
    resources = mapping(container.raw, "resources")
    for part in ("limits", "requests"):
        amounts = mapping(resources, part)
        if GPU in amounts:
            yield part, amounts[GPU]


def _names_gpu(container: Container) -> bool:
    return any(True for _ in _amounts(container))


def _part(container: Container) -> Fraction | None:
    """The part of a GPU that a container asks for by quantity; None if it asks in no such way."""
    values = [value for _, value in _amounts(container)]
    try:
        parts = {amount_of(value) for value in values}
    except InputError:
        return None
    # Different amounts in limits and requests are an error; the verdict on the template says so.
    return parts.pop() if len(parts) == 1 and 0 < min(parts) < 1 else None


def _whole(path: str, container: Container) -> Iterable[PatchOperation]:
    for part, _ in _amounts(container):
        yield replace(f"{path}{container.path}/resources/{part}/{GPU.replace('/', '~1')}", "1")


def _put(spec: dict[str, Any], container: Container) -> None:
    """Put a copy of the container with a whole amount into a copied spec."""
    _, _, holder, index = container.path.split("/")
    resources = dict(mapping(container.raw, "resources"))
    for part, _ in _amounts(container):
        resources[part] = {**resources[part], GPU: "1"}
    spec[holder][int(index)] = {**container.raw, "resources": resources}


def _with_own_lists(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a spec whose lists of containers may be changed."""
    held = ("containers", "initContainers")
    copied = {key: [*spec[key]] for key in held if isinstance(spec.get(key), list)}
    return {**spec, **copied}


def _says(text: object, part: Fraction) -> bool:
    """Whether an annotation says the part, rounded as we would have written it."""
    try:
        return isinstance(text, str) and parse_fraction(text) == Fraction(_decimal(part))
    except InputError:
        return False


def _decimal(part: Fraction) -> str:
    """A fraction in decimals, rounded up at the ninth."""
    billionths = -(-part.numerator * _DIGITS // part.denominator)
    return f"0.{billionths:09d}".rstrip("0") if billionths < _DIGITS else "1"


def _read(text: object) -> tuple[dict[str, dict[str, str]], str]:
    """The record, or as much of it as can be read; and which file had been applied then."""
    if not isinstance(text, str):
        return {}, ""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}, ""
    if not isinstance(value, dict):
        return {}, ""
    digest = value.get(_APPLIED)
    known = {path: entry for path, entry in value.items() if isinstance(entry, dict)}
    return known, digest if isinstance(digest, str) else ""
