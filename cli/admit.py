"""``gpu-sharing admit``: what would become of manifests, without a cluster.

The decision is the server's own code; this module reads, asks and prints.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from cli.printable import printable
from sharing.documents import (
    MOST_BYTES,
    Document,
    KubeObject,
    objects_of,
    read_documents,
    read_path,
    write_documents,
)
from sharing.errors import InputError
from sharing.nodefile import read_nodes
from webhook.answer import answer_review
from webhook.manifests import Manifests, sort_out
from webhook.policies import Policies
from webhook.preview import Preview, preview
from webhook.review import parse_review
from webhook.snapshot import Snapshot
from webhook.verdict import VerdictKind

if TYPE_CHECKING:
    from sharing.inventory import Inventory

EXIT_DENIED: Final = 3
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_LABEL: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything that there is to print."""

    previews: tuple[Preview, ...]
    passed_over: Mapping[str, int]
    """Objects that make no pods, by kind."""
    answers: tuple[dict[str, Any], ...]
    """Answers to AdmissionReviews."""
    ungoverned: tuple[str, ...]
    """Namespaces of these objects that have no policy."""

    @property
    def exit_code(self) -> int:
        """3 if anything was denied."""
        denied = [p for p in self.previews if p.kind is VerdictKind.DENY]
        refused = [a for a in self.answers if not a["response"]["allowed"]]
        return EXIT_DENIED if denied or refused else 0


@click.command(short_help="Show what would become of manifests.")
@click.option(
    "-f",
    "--filename",
    "sources",
    required=True,
    multiple=True,
    metavar="FILE|DIR|-",
    help="Manifests: a file, a folder with its subfolders, or - for standard input. Repeatable.",
)
@click.option(
    "-n", "--namespace", default="", metavar="NAME", help="For objects that name none.  [default]"
)
@click.option(
    "--namespace-label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Label of --namespace and of each namespace that no manifest describes. Repeatable.",
)
@click.option("--profiles", metavar="FILE|DIR", help="SharingProfile manifests.")
@click.option("--nodes", metavar="FILE|DIR", help="What the nodes offer; nothing is known without.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "yaml", "json", "patch"]),
    default="table",
    show_default=True,
    help="patch: one line an object, a JSON Patch.",
)
def admit(
    *,
    sources: tuple[str, ...],
    namespace: str,
    labels: tuple[str, ...],
    profiles: str | None,
    nodes: str | None,
    output: str,
) -> None:
    r"""Show what would become of manifests: pods, and whatever makes pods.

    Namespaces and SharingProfiles among the manifests count as policy; objects that make no pods
    are passed over. A file that holds an AdmissionReview gives an AdmissionReview.

    \b
      gpu-sharing admit -f pod.yaml --namespace-label gpu.sharing/mode=mps
      kustomize build . | gpu-sharing admit -f - --profiles profiles.yaml --nodes nodes.yaml

    Exit status: 0 all admitted, 3 something denied, 2 input or usage wrong.
    """
    if namespace and not _NAMESPACE.fullmatch(namespace):
        raise click.BadParameter(f"{namespace!r} is no namespace", param_hint="--namespace")
    found = sort_out(objects_of(_read_all(sources)))
    given = _read_profiles(profiles)
    inventory = read_nodes(read_path(Path(nodes))) if nodes is not None else None
    snapshot = _snapshot(
        found, given, namespace=namespace, labels=_parse_labels(labels), inventory=inventory
    )
    result = decide(found.others, namespace or "default", snapshot)
    print_result(result, output)
    click.get_current_context().exit(result.exit_code)


def _read_all(sources: Iterable[str]) -> Iterable[Document]:
    for source in sources:
        if source == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
            yield from read_documents(data, "standard input")
        else:
            yield from read_path(Path(source))


def _read_profiles(path: str | None) -> Manifests:
    if path is None:
        return sort_out(())
    found = sort_out(objects_of(read_path(Path(path))))
    if not found.profiles:
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


def _snapshot(
    found: Manifests,
    given: Manifests,
    *,
    namespace: str,
    labels: Mapping[str, str],
    inventory: Inventory | None,
) -> Snapshot:
    for name in sorted(found.profiles.keys() & given.profiles.keys()):
        if found.profiles[name].spec != given.profiles[name].spec:
            raise InputError(
                f"SharingProfile {name!r}",
                "--filename and --profiles hold it with different content",
                fix="remove one of them",
            )
    described = {**given.namespaces, **found.namespaces}
    named = {_namespace_of(other) or namespace or "default" for other in found.others}
    labelled = (named | {namespace or "default"}) - described.keys() | ({namespace} - {""})
    namespaces = {
        **described,
        **{name: {**described.get(name, {}), **labels} for name in labelled},
    }
    policies = Policies(namespaces=namespaces, profiles={**given.profiles, **found.profiles})
    return Snapshot(policies=policies, inventory=inventory)


def _namespace_of(found: KubeObject) -> str:
    if not _is_review(found):
        return found.namespace
    request = found.value.get("request")
    namespace = request.get("namespace") if isinstance(request, dict) else None
    return namespace if isinstance(namespace, str) else ""


def _is_review(found: KubeObject) -> bool:
    return found.kind == "AdmissionReview"


def decide(objects: Iterable[KubeObject], namespace: str, snapshot: Snapshot) -> Result:
    """The verdicts on all objects.

    Args:
        objects: What is neither profile nor namespace.
        namespace: For objects that name none.
        snapshot: Policies and nodes.

    Raises:
        InputError: An object is malformed, or reviews stand beside manifests.
    """
    previews: list[Preview] = []
    answers: list[dict[str, Any]] = []
    passed_over: Counter[str] = Counter()
    for found in objects:
        if _is_review(found):
            answers.append(_answer(found, snapshot))
        elif (decided := preview(found, found.namespace or namespace, snapshot)) is None:
            passed_over[found.kind] += 1
        else:
            previews.append(decided)
        if answers and (previews or passed_over):
            raise InputError(
                found.where,
                "AdmissionReviews and manifests stand side by side",
                expected="the one or the other",
                fix="use one call for each",
            )
    namespaces = sorted({decided.namespace for decided in previews})
    return Result(
        previews=tuple(previews),
        passed_over=passed_over,
        answers=tuple(answers),
        ungoverned=tuple(n for n in namespaces if snapshot.policies.profile_for(n).untouched),
    )


def _answer(found: KubeObject, snapshot: Snapshot) -> dict[str, Any]:
    try:
        review = parse_review(found.value)
    except InputError as error:
        raise error.about(found.where) from error
    answered = answer_review(review, snapshot)
    if answered.fault is not None:
        raise answered.fault
    answer: dict[str, Any] = orjson.loads(answered.answer.body)
    return answer


def print_result(result: Result, output: str) -> None:
    """Print in one of the forms ``table``, ``yaml``, ``json``, ``patch``."""
    if result.answers:
        _print_answers(result.answers, output)
        return
    match output:
        case "json":
            click.echo(_json([entry(preview) for preview in result.previews]))
        case "yaml":
            made = [patched(p) for p in result.previews if p.kind is not VerdictKind.DENY]
            click.echo(write_documents(made) if made else "", nl=False)
            _print_denials(result)
        case "patch":
            for decided in result.previews:
                click.echo(_line(operations(decided)))
            _print_denials(result)
        case _:
            from cli.admittable import print_table

            print_table(result.previews, result.passed_over, result.ungoverned)


def _print_answers(answers: Iterable[dict[str, Any]], output: str) -> None:
    for answer in answers:
        if output == "yaml":
            click.echo(write_documents([answer]), nl=False)
        elif output == "patch":
            import base64

            click.echo(base64.b64decode(answer["response"].get("patch", "W10=")))
        else:
            click.echo(_json(answer))


def _print_denials(result: Result) -> None:
    for decided in result.previews:
        if decided.kind is VerdictKind.DENY:
            click.echo(printable(f"denied: {title(decided)}: {decided.message}"), err=True)


def title(decided: Preview) -> str:
    """The object as messages call it: ``Deployment team-a/web``."""
    return f"{decided.found.kind} {decided.namespace}/{decided.found.name or '(no name)'}"


def operations(decided: Preview) -> list[dict[str, Any]]:
    """The patch as JSON."""
    return [operation.to_json() for operation in decided.operations]


def patched(decided: Preview) -> dict[str, Any]:
    """The object as it would be, made by a JSON Patch library from the original and the patch."""
    if not decided.operations:
        return decided.found.value
    import jsonpatch

    changed: dict[str, Any] = jsonpatch.apply_patch(decided.found.value, operations(decided))
    return changed


def entry(decided: Preview) -> dict[str, Any]:
    """One member of the JSON form."""
    denied = decided.kind is VerdictKind.DENY
    return {
        "kind": decided.found.kind,
        "namespace": decided.namespace,
        "name": decided.found.name,
        "verdict": decided.kind.value,
        "code": decided.code,
        "message": decided.message,
        "warnings": list(decided.warnings),
        "grants": [grant.to_json() for grant in decided.grants],
        "patch": operations(decided),
        "object": None if denied else patched(decided),
    }


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def _line(value: Any) -> str:
    return orjson.dumps(value).decode()
