"""What ``gpu-sharing admit`` decides about, and under which policies: files, a cluster, options.

Files stand over the cluster, as they would once they are applied; options stand over files.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sharing.api.profile import SharingProfile, builtin_profiles
from sharing.documents import (
    MOST_BYTES,
    Document,
    KubeObject,
    objects_of,
    read_documents,
    read_path,
)
from sharing.errors import InputError, shown
from sharing.names import PROFILE_LABEL
from sharing.nodefile import read_nodes
from webhook.manifests import Manifests, sort_out
from webhook.original import as_asked
from webhook.policies import Policies
from webhook.snapshot import Snapshot

if TYPE_CHECKING:
    from sharing.cluster.client import Client

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_LABEL: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_MOST_NAMES: Final = 12
_TEMPLATE_MARK: Final = b"{{"
STANDARD_INPUT: Final = "standard input"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a person asked for; texts as they were typed."""

    sources: tuple[str, ...]
    namespace: str
    labels: tuple[str, ...]
    profiles: str | None
    nodes: str | None
    profile: str | None
    what_if: str | None
    kubeconfig: str | None
    context: str | None

    @property
    def is_live(self) -> bool:
        """Whether a cluster is asked."""
        return self.kubeconfig is not None or self.context is not None

    @property
    def cluster(self) -> str:
        """How messages call the cluster."""
        return f"cluster {self.context}" if self.context else f"cluster of {self.kubeconfig}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Objects, and the policies that they are decided under."""

    objects: tuple[KubeObject, ...]
    namespace: str
    """For objects that name none."""
    now: Snapshot
    then: Snapshot | None
    """With the change of ``--what-if``; None without one."""
    changed_profiles: tuple[str, ...]
    """Profiles that the change gives, by name."""
    is_live: bool
    """Whether the objects are a cluster's own."""
    unknown: tuple[str, ...] = ()
    """What nobody can tell any more of objects that were admitted already, one sentence each."""

    def governed(self) -> tuple[str, ...]:
        """Namespaces that a profile of the change would govern."""
        if self.then is None:
            return ()
        policies = self.then.policies
        found = ((name, policies.profile_for(name).profile) for name in policies.namespaces)
        changed = self.changed_profiles
        return tuple(sorted(n for n, profile in found if profile and profile.name in changed))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    snapshot: Snapshot = field(default_factory=Snapshot)
    workloads: tuple[KubeObject, ...] = ()


def gather(wanted: Wanted) -> Scene:
    """Read everything that was asked for.

    Raises:
        InputError: A file is wrong, or two of them contradict each other.
        UnavailableError: The cluster refuses or does not answer.
    """
    if wanted.namespace and not _NAMESPACE.fullmatch(wanted.namespace):
        raise click.BadParameter(f"{wanted.namespace!r} is no namespace", param_hint="--namespace")
    if not wanted.sources and not wanted.is_live:
        raise click.UsageError(
            "there is nothing to decide about; give manifests by -f FILE, or a cluster by "
            "--context NAME or --kubeconfig FILE"
        )
    labels = _parse_labels(wanted.labels)
    found = sort_out(objects_of(_read_all(wanted.sources)))
    given = _read_profiles(wanted.profiles, "--profiles")
    changes = _read_profiles(wanted.what_if, "--what-if")
    _refuse_two_truths(found, given)
    # Before anything is fetched: what a person wrote may be wrong.
    inventory = read_nodes(read_path(Path(wanted.nodes))) if wanted.nodes is not None else None
    cluster = asyncio.run(_read_cluster(wanted)) if wanted.is_live else _Cluster()
    objects = found.others if wanted.sources else cluster.workloads
    described = _overlaid(_overlaid(cluster.snapshot.policies, given), found)
    objects, unknown = _as_asked(objects, described)
    named = {_namespace_of(one) or wanted.namespace or "default" for one in objects}
    policies = _labelled(described, named | {wanted.namespace or "default"}, wanted, labels)
    then = _overlaid(policies, changes) if wanted.what_if is not None else None
    if wanted.profile is not None:
        governed = _governed(then or policies, named, wanted.profile)
        policies, then = (policies, governed) if then is not None else (governed, None)
    known = cluster.snapshot.inventory if inventory is None else inventory
    return Scene(
        objects=objects,
        namespace=wanted.namespace or "default",
        now=Snapshot(policies=policies, inventory=known),
        then=None if then is None else Snapshot(policies=then, inventory=known),
        changed_profiles=tuple(sorted(changes.profiles)),
        is_live=not wanted.sources,
        unknown=unknown,
    )


def _read_all(sources: Iterable[str]) -> Iterator[Document]:
    for source in sources:
        if source == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
            yield from read_documents(data, STANDARD_INPUT)
        else:
            try:
                yield from read_path(Path(source))
            except InputError as error:
                raise _unrendered(error, Path(source)) or error from error


def _unrendered(error: InputError, source: Path) -> InputError | None:
    """The same error about a template of Helm's, which is no manifest yet; None for others."""
    broken = Path(error.subject.partition(", ")[0])
    try:
        with broken.open("rb") as file:
            is_template = _TEMPLATE_MARK in file.read(MOST_BYTES)
    except OSError:
        return None
    if not is_template:
        return None
    chart = next((one for one in broken.parents if (one / "Chart.yaml").is_file()), source)
    return InputError(
        error.subject,
        "it is a template, no manifest",
        expected="manifests as Helm renders them",
        fix="render them first",
        example=f"helm template {chart} | gpu-sharing admit -f -",
    )


def _read_profiles(path: str | None, option: str) -> Manifests:
    if path is None:
        return sort_out(())
    found = sort_out(objects_of(read_path(Path(path))))
    if not found.profiles and not (option == "--what-if" and found.namespaces):
        raise InputError(
            path,
            "there is no SharingProfile in it",
            expected="manifests of kind SharingProfile",
            example="apiVersion: gpu.sharing/v1alpha1, kind: SharingProfile",
        )
    return found


def _parse_labels(texts: Iterable[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not _LABEL.fullmatch(key) or not _VALUE.fullmatch(value):
            raise click.BadParameter(
                f"{text!r} is no label; expected KEY=VALUE, for example gpu.sharing/mode=mps",
                param_hint="--namespace-label",
            )
        labels[key] = value
    return labels


def _refuse_two_truths(found: Manifests, given: Manifests) -> None:
    for name in sorted(found.profiles.keys() & given.profiles.keys()):
        if found.profiles[name].spec != given.profiles[name].spec:
            raise InputError(
                f"SharingProfile {name!r}",
                "--filename and --profiles hold it with different content",
                fix="remove one of them",
            )


async def _read_cluster(wanted: Wanted) -> _Cluster:
    from sharing.cluster.client import Client

    path = Path(wanted.kubeconfig) if wanted.kubeconfig is not None else None
    connection = Client.from_kubeconfig(
        path, context=wanted.context or "", user_agent="gpu-sharing-admit"
    )
    async with connection as client:
        return await _read_from(client, wanted)


async def _read_from(client: Client, wanted: Wanted) -> _Cluster:
    from webhook.clusterwork import read_snapshot, read_workloads

    snapshot = await read_snapshot(client)
    if wanted.sources:
        return _Cluster(snapshot=snapshot)
    workloads = await read_workloads(client, where=wanted.cluster, namespace=wanted.namespace)
    return _Cluster(snapshot=snapshot, workloads=workloads)


def _as_asked(
    workloads: Iterable[KubeObject], policies: Policies
) -> tuple[tuple[KubeObject, ...], tuple[str, ...]]:
    """Objects as their authors wrote them, and what cannot be known of that."""
    asked, unknown = [], []
    for found in workloads:
        value, notes = as_asked(found.value, policies) if found.kind == "Pod" else (found.value, ())
        asked.append(replace(found, value=value))
        path = f"{found.namespace}/{found.name}" if found.namespace else found.name
        unknown += [f"Pod {path}: {note}" for note in notes]
    return tuple(asked), tuple(unknown)


def _overlaid(policies: Policies, manifests: Manifests) -> Policies:
    """Policies once manifests are applied: labels are added, profiles replaced."""
    namespaces = dict(policies.namespaces)
    for name, labels in manifests.namespaces.items():
        namespaces[name] = {**namespaces.get(name, {}), **labels}
    profiles = {**policies.profiles, **manifests.profiles}
    return replace(policies, namespaces=namespaces, profiles=profiles)


def _labelled(
    policies: Policies, named: set[str], wanted: Wanted, labels: Mapping[str, str]
) -> Policies:
    """Labels of ``--namespace-label`` on its namespace and on those that nothing describes."""
    labelled = (named - policies.namespaces.keys()) | ({wanted.namespace} - {""})
    added = {name: {**policies.namespaces.get(name, {}), **labels} for name in labelled}
    return replace(policies, namespaces={**policies.namespaces, **added})


def _governed(policies: Policies, namespaces: Iterable[str], profile: str) -> Policies:
    """The same, with these namespaces under one profile."""
    known = sorted({*policies.profiles, *builtin_profiles()})
    if profile not in known:
        more = "" if len(known) <= _MOST_NAMES else f" and {len(known) - _MOST_NAMES} more"
        raise InputError(
            f"profile {shown(profile)}",
            "there is no SharingProfile of that name",
            expected=f"one of {', '.join(known[:_MOST_NAMES])}{more}",
            fix="correct it, or give the profile's manifest by --profiles FILE",
        )
    found = policies.profiles.get(profile)
    if found is not None and not isinstance(found, SharingProfile):
        raise InputError(f"profile {shown(profile)}", found.error)
    governed = {
        name: {**policies.namespaces.get(name, {}), PROFILE_LABEL: profile} for name in namespaces
    }
    return replace(policies, namespaces={**policies.namespaces, **governed})


def _namespace_of(found: KubeObject) -> str:
    if not is_review(found):
        return found.namespace
    request = found.value.get("request")
    namespace = request.get("namespace") if isinstance(request, dict) else None
    return namespace if isinstance(namespace, str) else ""


def is_review(found: KubeObject) -> bool:
    """Whether an object is the API server's question about one."""
    return found.kind == "AdmissionReview"
