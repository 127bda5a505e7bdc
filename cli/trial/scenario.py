"""The scenario file: nodes, objects, pods, and what must become of each pod."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import Field

from cli.trial.kinds import kind_of
from sharing.api.model import ApiModel, parse_model
from sharing.catalogue import parse_node_gpus
from sharing.errors import InputError, shown

DEFAULT: Final = "first-light"
_LARGEST_BYTES: Final = 1 << 20


class NodeSpec(ApiModel):
    """One simulated node."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]
    gpus: str | tuple[str, ...]
    """``8xH100-80GB`` or a list of boards."""
    labels: dict[str, str] = Field(default_factory=dict)


class Expectation(ApiModel):
    """What must become of a pod; what is left out may be anything."""

    verdict: Literal["allow", "patch", "deny"] | None = None
    """The webhook's answer: unchanged, changed, refused."""
    code: int | None = None
    """HTTP status of a refusal."""
    says: str | None = None
    """A part of the refusal's message."""
    phase: Literal["Running", "Pending", "Failed", "Succeeded"] | None = None
    containers: dict[str, str] | None = None
    """The resource that each container ends up with; containers not named get none."""


class PodSpec(ApiModel):
    """One pod and its expectation."""

    about: str
    manifest: dict[str, Any]
    expect: Expectation = Expectation()

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.manifest["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return str(self.manifest["metadata"]["namespace"])

    @property
    def key(self) -> str:
        """How reports name it: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class Scenario(ApiModel):
    """A whole scenario."""

    nodes: Annotated[tuple[NodeSpec, ...], Field(min_length=1, max_length=16)]
    objects: tuple[dict[str, Any], ...] = ()
    pods: Annotated[tuple[PodSpec, ...], Field(max_length=500)] = ()


def load(path: Path | None) -> Scenario:
    """The scenario in a file, or the one that ships with the product.

    Raises:
        InputError: The file cannot be read, is no YAML, or is no scenario.
    """
    if path is None:
        text = (resources.files("cli.trial") / "scenarios" / f"{DEFAULT}.yaml").read_text("utf-8")
        return parse(text, "the built-in scenario")
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"scenario {path}", f"cannot be read: {error}") from error
    if len(raw) > _LARGEST_BYTES:
        raise InputError(f"scenario {path}", f"is larger than {_LARGEST_BYTES} bytes")
    return parse(text, f"scenario {path}")


def parse(text: str, subject: str) -> Scenario:
    """The scenario that a text holds.

    Raises:
        InputError: As ``load``.
    """
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(subject, f"is no YAML: {' '.join(str(error).split())}") from error
    scenario = parse_model(Scenario, raw, subject)
    for number, pod in enumerate(scenario.pods):
        metadata = pod.manifest.get("metadata")
        named = isinstance(metadata, Mapping) and all(
            isinstance(metadata.get(key), str) for key in ("name", "namespace")
        )
        if not named:
            raise InputError(
                subject,
                f"pods[{number}].manifest has no metadata.name and metadata.namespace",
                expected="both",
                example="metadata: {name: plain, namespace: inference}",
            )
    for number, manifest in enumerate(scenario.objects):
        if not all(isinstance(manifest.get(key), str) for key in ("apiVersion", "kind")):
            raise InputError(
                subject,
                f"objects[{number}] has no apiVersion and kind",
                expected="both",
                example="{apiVersion: v1, kind: Namespace, metadata: {name: team-a}}",
            )
        kind_of(manifest)
    for node in scenario.nodes:
        try:
            parse_node_gpus(node.gpus if isinstance(node.gpus, str) else list(node.gpus))
        except InputError as error:
            raise error.about(subject) from error
    _refuse_twins(subject, "nodes", [node.name for node in scenario.nodes])
    _refuse_twins(subject, "pods", [pod.key for pod in scenario.pods])
    return scenario


def _refuse_twins(subject: str, field: str, names: list[str]) -> None:
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise InputError(subject, f"{field} names {shown(twins[0])} twice", fix="rename one")
