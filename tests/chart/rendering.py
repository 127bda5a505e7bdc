"""What the chart renders to: value sets, the files that hold the results, and how to make them.

The rendered files are committed, so that most tests need no Helm; a digest of what they were
rendered from tells when they are stale, also where there is no Helm.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from sharing.api.crd import render as render_yaml
from tests.chart.tool import HELM, HELM_VERSION
from webhook.registration import client_by_service, configuration
from webhook.server import PATH

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
CHART: Final = DEPLOY / "chart"
GOLDEN: Final = Path(__file__).parent / "golden"
DIGEST: Final = GOLDEN / "rendered-from.sha256"
NAMESPACE: Final = "gpu-sharing"
SETS: Final = tuple(sorted(path.stem for path in (CHART / "ci").glob("*.yaml")))
KUBE_VERSIONS: Final = ("1.30.0", "1.34.0", "1.37.2")
"""The oldest that the chart takes, and those that its objects were tried on."""
MANIFESTS: Final = {
    "default": DEPLOY / "manifests" / "gpu-sharing.yaml",
    "simulated": DEPLOY / "manifests" / "gpu-sharing-simulated.yaml",
}
"""The plain manifests, by value set."""
WEBHOOKS: Final = CHART / "files" / "webhooks.yaml"
"""The entries of the webhook configuration, as the webhook itself says them."""
COPIES: Final = {"crds": CHART / "files" / "crds", "policies": CHART / "files" / "policies"}
"""What the chart carries a copy of, because Helm reads nothing outside it: by folder of deploy."""

_OF_HELM: Final = re.compile(
    r"^ +app\.kubernetes\.io/managed-by: Helm\n|^ +helm\.sh/chart: .*\n"
    r"|^ +annotations:\n +helm\.sh/resource-policy: keep\n|^# Source: .*\n",
    re.MULTILINE,
)
_HEAD: Final = """\
# Everything of gpu-sharing, rendered from deploy/chart with the values of ci/{values}.yaml.
# Do not edit: make golden writes it.
apiVersion: v1
kind: Namespace
metadata:
  name: {namespace}
  labels:
    app.kubernetes.io/name: gpu-sharing
    # The agent needs folders of the node.
    pod-security.kubernetes.io/enforce: privileged
"""


def arguments(values: str, kube_version: str = KUBE_VERSIONS[-1]) -> tuple[str, ...]:
    """Helm's arguments for a value set."""
    return (
        *("gpu-sharing", str(CHART), "--namespace", NAMESPACE),
        *("--kube-version", kube_version, "--values", str(CHART / "ci" / f"{values}.yaml")),
    )


def render(values: str, kube_version: str = KUBE_VERSIONS[-1]) -> str:
    """The text that Helm makes of a value set, without what only ``helm test`` creates.

    Raises:
        AssertionError: Helm refuses, with its words.
    """
    done = HELM.run("template", "--skip-tests", *arguments(values, kube_version))
    assert not done.returncode, done.stderr
    return done.stdout


def golden(values: str) -> Path:
    """The file that holds what a value set was rendered to."""
    return GOLDEN / f"{values}.yaml"


@cache
def _parsed(text: str) -> tuple[dict[str, Any], ...]:
    return tuple(each for each in yaml.safe_load_all(text) if each)


def objects(values: str) -> tuple[dict[str, Any], ...]:
    """The objects of a value set, as committed; not to be changed."""
    return _parsed(golden(values).read_text("utf-8"))


def the(values: str, kind: str, name: str) -> dict[str, Any]:
    """One object of a value set."""
    (found,) = (
        each for each in objects(values) if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )
    return found


def manifest(values: str, text: str) -> str:
    """A rendered text for people without Helm: with its namespace, without Helm's marks."""
    return _HEAD.format(values=values, namespace=NAMESPACE) + _OF_HELM.sub("", text)


def digest() -> str:
    """Of everything that rendering reads, and of what it is rendered with."""
    total = hashlib.sha256(HELM_VERSION.encode())
    paths = [
        path
        for path in CHART.rglob("*")
        if path.is_file() and path.name != "README.md" and not path.name.startswith(".")
    ]
    for path in sorted(paths):
        total.update(f"\0{path.relative_to(CHART)}\0".encode() + path.read_bytes())
    return total.hexdigest()


def copied(folder: str) -> dict[str, bytes]:
    """The files that the chart has to carry a copy of, by name; none if there is no folder."""
    return {path.name: path.read_bytes() for path in sorted((DEPLOY / folder).glob("*.yaml"))}


def carried(folder: str) -> dict[str, bytes]:
    """The copies that the chart carries."""
    return {path.name: path.read_bytes() for path in sorted(COPIES[folder].glob("*.yaml"))}


def copy(folder: str) -> None:
    """Bring the chart's copies up to date."""
    COPIES[folder].mkdir(parents=True, exist_ok=True)
    for name in carried(folder).keys() - copied(folder).keys():
        (COPIES[folder] / name).unlink(missing_ok=True)
    for name, content in copied(folder).items():
        _write(COPIES[folder] / name, content.decode())


@cache
def values() -> dict[str, Any]:
    """The chart's values; not to be changed."""
    loaded: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    return loaded


def chosen(name: str) -> dict[str, Any]:
    """The chart's values under one of its value sets."""
    return _merged(values(), yaml.safe_load((CHART / "ci" / f"{name}.yaml").read_text("utf-8")))


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    return below | {
        key: _merged(below[key], value)
        if isinstance(value, dict) and isinstance(below.get(key), dict)
        else value
        for key, value in above.items()
    }


def webhooks() -> str:
    """The text of the entries that the chart carries: all, for the release's namespace."""
    client = client_by_service(NAMESPACE, "gpu-sharing-webhook", PATH)
    head = "# Made from webhook/registration.py by make golden.\n"
    return head + render_yaml(configuration(client, hide_gpus=True)["webhooks"])


def write_all() -> None:
    """Write everything that is made from something else; without Helm, the copies only."""
    for folder in COPIES:
        copy(folder)
    _write(WEBHOOKS, webhooks())
    if HELM.find() is None:
        return
    GOLDEN.mkdir(exist_ok=True)
    for each in SETS:
        _write(golden(each), render(each))
    for each, path in MANIFESTS.items():
        path.parent.mkdir(exist_ok=True)
        _write(path, manifest(each, golden(each).read_text("utf-8")))
    _write(DIGEST, digest() + "\n")


def _write(path: Path, text: str) -> None:
    """Replace a file at once: several workers of one test run may do it together."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text, "utf-8")
    scratch.replace(path)
