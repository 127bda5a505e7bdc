"""``gpu-sharing admit``: what would become of manifests, or of what a cluster runs.

The decision is the server's own code. What is decided about is gathered in ``admitscene``, decided
in ``admitresult``, and printed by ``admittable``, ``admitforms``, ``admitreports`` and, where two
policies are compared, ``admitwhatif``.
"""

from __future__ import annotations

from typing import Final

import click

from cli.admitresult import Result, decide
from cli.admitscene import Scene, Wanted, gather
from sharing.errors import InputError

_FORMS: Final = ("table", "yaml", "json", "patch", "junit", "sarif", "kueue")
_REPORTS: Final = frozenset({"junit", "sarif"})
_COMPARISONS: Final = frozenset({"table", "json", "diff"})


@click.command(short_help="Show what would become of manifests.")
@click.option(
    "-f",
    "--filename",
    "sources",
    multiple=True,
    metavar="FILE|DIR|-",
    help="Manifests: a file, a folder with its subfolders, or - for standard input. Repeatable.",
)
@click.argument("strays", nargs=-1, metavar="")
@click.option(
    "-n",
    "--namespace",
    default="",
    metavar="NAME",
    help="For objects that name none.  [default]  Of a cluster's own workloads, only its.",
)
@click.option(
    "--namespace-label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="Label of --namespace and of each namespace that nothing describes. Repeatable.",
)
@click.option("--profiles", metavar="FILE|DIR", help="SharingProfile manifests.")
@click.option("--nodes", metavar="FILE|DIR", help="What the nodes offer; nothing is known without.")
@click.option("--profile", metavar="NAME", help="Decide under this profile in every namespace.")
@click.option(
    "--what-if",
    metavar="FILE|DIR",
    help="Show what would change if the profiles, and labels of namespaces, in it were applied.",
)
@click.option("--kubeconfig", metavar="FILE", help="A cluster to take policies and nodes from.")
@click.option("--context", metavar="NAME", help="Its context. Without -f, its workloads as well.")
@click.option("--diff", is_flag=True, help="Show what changes in each object, as diff -u does.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(_FORMS),
    help="patch: one line an object, a JSON Patch; junit, sarif: reports for CI; kueue: what "
    "shares count for under --profile.  [table]",
)
def admit(  # noqa: PLR0913 - one parameter an option
    *,
    sources: tuple[str, ...],
    strays: tuple[str, ...],
    namespace: str,
    labels: tuple[str, ...],
    profiles: str | None,
    nodes: str | None,
    profile: str | None,
    what_if: str | None,
    kubeconfig: str | None,
    context: str | None,
    diff: bool,
    output: str | None,
) -> None:
    """Show what would become of manifests: pods, and whatever makes pods.

    Namespaces and SharingProfiles among the manifests count as policy; objects that make no pods
    are passed over. A file that holds an AdmissionReview gives an AdmissionReview. A cluster is
    only read.

    \b
      gpu-sharing admit -f pod.yaml --namespace-label gpu.sharing/mode=mps
      kustomize build . | gpu-sharing admit -f - --context prod --diff
      gpu-sharing admit --context prod --what-if profile.yaml

    Exit status: 0 all admitted, 3 something denied (with --what-if: newly denied), 1 the cluster
    did not answer, 2 input or usage wrong.
    """  # noqa: D301 - click wants the character itself
    if strays:
        files = " ".join(f"-f {stray}" for stray in strays)
        raise click.UsageError(f"manifests are given by -f: gpu-sharing admit {files}")
    if diff and output is not None:
        raise click.UsageError("--diff is a form of its own: leave out --output")
    form = "diff" if diff else output or "table"
    if what_if is not None and form not in _COMPARISONS:
        raise click.UsageError(f"--what-if compares: use -o table, -o json or --diff, not {form}")
    wanted = Wanted(
        sources=sources,
        namespace=namespace,
        labels=labels,
        profiles=profiles,
        nodes=nodes,
        profile=profile,
        what_if=what_if,
        kubeconfig=kubeconfig,
        context=context,
    )
    scene = gather(wanted)
    if form == "kueue":
        _print_kueue(scene, profile)
        return
    result = decide(scene.objects, scene.namespace, scene.now)
    if scene.then is not None:
        code = _print_comparison(scene, result, form)
    else:
        _print_result(result, form, is_live=scene.is_live)
        code = result.exit_code
    click.get_current_context().exit(code)


def _print_kueue(scene: Scene, name: str | None) -> None:
    from sharing.documents import write_documents
    from webhook.kueue import transformations

    profile = scene.now.policies.find(name) if name is not None else None
    if profile is None:
        raise click.UsageError("-o kueue needs the profile that decides: --profile NAME")
    if scene.now.inventory is None:
        raise click.UsageError("-o kueue needs the nodes that offer shares: --nodes FILE")
    listed = transformations(profile, scene.now.inventory)
    click.echo(write_documents([{"resources": {"transformations": listed}}]), nl=False)


def _print_result(result: Result, form: str, *, is_live: bool) -> None:
    from cli import admitforms, admitreports

    if result.answers:
        if form in _REPORTS or form == "diff":
            raise InputError(
                "AdmissionReview", f"it has no {form} form", fix="use -o json, yaml or patch"
            )
        admitforms.print_answers(result.answers, form)
        return
    match form:
        case "json":
            admitforms.print_json(result)
        case "yaml":
            admitforms.print_yaml(result)
        case "patch":
            admitforms.print_patches(result)
        case "diff":
            admitforms.print_diffs(result)
        case "junit":
            admitreports.print_junit(result)
        case "sarif":
            admitreports.print_sarif(result)
        case _:
            from cli.admittable import print_table

            print_table(result, only_touched=is_live)


def _print_comparison(scene: Scene, result: Result, form: str) -> int:
    from cli import admitwhatif
    from webhook.whatif import compare

    if result.answers or scene.then is None:
        raise InputError(
            "AdmissionReview",
            "--what-if compares objects that make pods",
            fix="give manifests, or a cluster",
        )
    after = decide(scene.objects, scene.namespace, scene.then)
    changes = compare(result.previews, after.previews, scene.now.inventory)
    governed = scene.governed()
    match form:
        case "json":
            admitwhatif.print_json(result, changes, governed, scene.unknown)
        case "diff":
            admitwhatif.print_diffs(changes)
        case _:
            admitwhatif.print_table(
                result, changes, governed, scene.changed_profiles, unknown=scene.unknown
            )
    return admitwhatif.exit_code(changes)
