"""The CRDs, rendered from the models, so that API server and programs say the same.

What a model checks across fields is said again as a CEL rule where CEL can: then a mistake is
refused when it is written. The models remain the judge of what the cluster already holds.

    python -m sharing.api.crd --write deploy/crds
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from sharing.api.layout import GpuLayoutSpec
from sharing.api.model import GROUP, VERSION
from sharing.api.node import GpuNodeSpec, GpuNodeStatus
from sharing.api.profile import SharingProfileSpec, SharingProfileStatus
from sharing.api.schema import structural
from sharing.mode import Isolation, Mode
from sharing.shareclass import RESERVED_POOLS
from sharing.size import MOST_PARTS

Rule = dict[str, str]

_READY: Final = '.status.conditions[?(@.type=="Ready")].status'
_RANKS: Final = {grade.value: grade.rank for grade in Isolation}
_MODE_RANKS: Final = {mode.value: mode.isolation.rank for mode in Mode}
_PARTS: Final = [f"1of{parts}" for parts in range(1, MOST_PARTS + 1)]


def _rule(expression: str, message: str, *, field: str = "") -> Rule:
    rule = {"rule": " ".join(expression.split()), "message": message}
    if field:
        rule["fieldPath"] = field
    return rule


_POOL_RULE: Final = _rule(
    f"!(self in {list(RESERVED_POOLS)})",
    f"none of {', '.join(RESERVED_POOLS)} can be a pool; for example: team-a",
)
_PROFILE_RULES: Final = [
    _rule(
        "has(self.mode) != has(self.modes)",
        "exactly one of mode and modes is needed; for example: mode: mps",
    ),
    _rule(
        "!has(self.modes) || self.modes.all(m, self.modes.exists_one(n, n == m))",
        "a mode is listed twice; list each mode once",
        field=".modes",
    ),
    _rule(
        f"""!has(self.minIsolation)
        || (has(self.mode) ? [self.mode] : has(self.modes) ? self.modes : []).exists(m,
        {_MODE_RANKS}[m] >= {_RANKS}[self.minIsolation])""",
        "minIsolation is above what its modes give (time-slicing none, mps limits, mig hardware, "
        "exclusive device); lower it or choose a mode that isolates better",
        field=".minIsolation",
    ),
    _rule(
        "!has(self.defaultSize) || !has(self.allowedSizes) || "
        "self.defaultSize in self.allowedSizes",
        "defaultSize is not among allowedSizes; add it there, or choose one of them",
        field=".defaultSize",
    ),
    _rule(
        "!has(self.defaultSize) || !has(self.memory) || !has(self.memory.default)",
        "defaultSize and memory.default both say what a plain nvidia.com/gpu becomes; keep one",
        field=".memory",
    ),
    _rule(
        "!has(self.migProfile) || !has(self.migProfiles) || self.migProfile in self.migProfiles",
        "migProfile is not among migProfiles; add it there, or choose one of them",
        field=".migProfile",
    ),
    _rule(
        """!has(self.migProfile) || (has(self.mode) && self.mode == 'mig')
        || (has(self.modes) && 'mig' in self.modes)
        || (has(self.allowedModes) && 'mig' in self.allowedModes)""",
        "migProfile can never be used: mig is in neither mode, modes nor allowedModes",
        field=".migProfile",
    ),
    _rule(
        """!has(self.compatibility)
        || self.compatibility.all(s, self.compatibility.exists_one(t, t == s))""",
        "a system is listed twice; list each once",
        field=".compatibility",
    ),
    _rule(
        """!has(self.compatibility)
        || !('aliyun' in self.compatibility && 'aliyun-mib' in self.compatibility)""",
        "aliyun and aliyun-mib read one name in two units; keep one of them",
        field=".compatibility",
    ),
]
_MEMORY_RULES: Final = [
    _rule(
        """!has(self.max) || !has(self.default)
        || !quantity(string(self.default)).isGreaterThan(quantity(string(self.max)))""",
        "default is above max; raise max or lower default",
    ),
]
_TOLERATION_RULES: Final = [
    _rule(
        "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
        "without a key the operator has to be Exists; for example: "
        "{key: nvidia.com/gpu, operator: Exists}",
    ),
    _rule(
        "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''",
        "operator Exists compares no value; remove value, or set operator: Equal",
    ),
    _rule(
        "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        "tolerationSeconds is only for effect NoExecute; remove it, or set that effect",
    ),
]
_LAYOUT_RULES: Final = [
    _rule(
        "self.mode != 'exclusive' || !has(self.sizes) || size(self.sizes) == 0",
        "an exclusive GPU has no sizes",
    ),
    _rule(
        f"""!(self.mode in ['mps', 'time-slicing']) || (has(self.sizes) && size(self.sizes) > 0
        && self.sizes.all(k, k in {_PARTS}))""",
        "mps and time-slicing need sizes that are parts of a GPU; for example: "
        "sizes: {1of2: 1, 1of4: 2}",
    ),
    _rule(
        "self.mode != 'mig' || !has(self.sizes) || self.sizes.all(k, !k.startsWith('1of'))",
        "mig needs MIG profiles as sizes; for example: sizes: {1g.10gb: 4}",
    ),
    _rule(
        "self.mode == 'time-slicing' || !has(self.timeSlice)",
        "timeSlice has no meaning outside of mode time-slicing",
    ),
    _rule(
        "!has(self.cut) || self.cut.all(p, has(self.sizes) && p in self.sizes)",
        "cut names a MIG profile that sizes lacks; for example: "
        "sizes: {3g.40gb: 2}, cut: {3g.40gb: {mode: mps, sizes: {1of4: 4}}}",
    ),
    _rule(
        "self.mode == 'mig' || !has(self.cut) || size(self.cut) == 0",
        "only MIG instances can be cut further; remove cut, or use mode mig",
    ),
]
_CUT_RULES: Final = [
    _rule(
        f"self.sizes.all(k, k in {_PARTS})",
        "what MIG instances are cut into are parts of one; for example: "
        "{mode: mps, sizes: {1of4: 4}}",
    ),
]
_MOST_CUT_SIZES: Final = 16


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "priority": 1} if wide else column


_AGE: Final = _column("Age", ".metadata.creationTimestamp", "date")


def crd_manifests() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of the group, sorted by name."""
    return [_layouts(), _nodes(), _profiles()]


def _profiles() -> dict[str, Any]:
    spec, status = structural(SharingProfileSpec), structural(SharingProfileStatus)
    spec["x-kubernetes-validations"] = _PROFILE_RULES
    fields = spec["properties"]
    fields["memory"]["x-kubernetes-validations"] = _MEMORY_RULES
    fields["pool"]["x-kubernetes-validations"] = [_POOL_RULE]
    fields["tolerations"]["items"]["x-kubernetes-validations"] = _TOLERATION_RULES
    return _crd(
        kind="SharingProfile",
        short="sprof",
        spec=spec,
        status=status,
        description="How GPUs are shared in the namespaces that name it by gpu.sharing/profile.",
        columns=[
            _column("Mode", ".spec.mode"),
            _column("Modes", ".spec.modes"),
            _column("Default", ".spec.defaultSize"),
            _column("Pool", ".spec.pool", wide=True),
            _column("Enforcement", ".spec.enforcement"),
            _column("Namespaces", ".status.namespaceCount", "integer"),
            _column("Ready", _READY),
            _AGE,
        ],
    )


def _layouts() -> dict[str, Any]:
    spec = structural(GpuLayoutSpec)
    entry = spec["properties"]["gpus"]["items"]
    _check_layout(entry)
    entry["properties"]["gpus"] = {
        "description": "Which GPUs: indices, board:<name>, uuid:<GPU-…>, rest or all.",
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
    }
    return _crd(
        kind="GPULayout",
        short="gpul",
        spec=spec,
        status=_conditions_only(),
        description="What the GPUs of the nodes that its selector picks are cut into.",
        columns=[_column("Priority", ".spec.priority", "integer"), _column("Ready", _READY), _AGE],
    )


def _nodes() -> dict[str, Any]:
    spec, status = structural(GpuNodeSpec), structural(GpuNodeStatus)
    _check_layout(spec["properties"]["gpus"]["items"]["properties"]["layout"])
    return _crd(
        kind="GPUNode",
        short="gpun",
        spec=spec,
        status=status,
        description="The GPUs of one node: wanted layouts, and what the driver reports.",
        columns=[
            _column("Driver", ".status.driverVersion"),
            _column("Boards", ".status.gpus[*].board", wide=True),
            _column("Ready", _READY),
            _AGE,
        ],
    )


def _check_layout(layout: dict[str, Any]) -> None:
    layout["x-kubernetes-validations"] = _LAYOUT_RULES
    layout["properties"]["sizes"]["maxProperties"] = MOST_PARTS
    cut = layout["properties"]["cut"]["additionalProperties"]
    cut["properties"]["sizes"]["maxProperties"] = _MOST_CUT_SIZES
    cut["x-kubernetes-validations"] = _CUT_RULES
    layout["properties"]["pool"]["x-kubernetes-validations"] = [_POOL_RULE]


def _conditions_only() -> dict[str, Any]:
    whole = structural(SharingProfileStatus)["properties"]
    kept = {key: whole[key] for key in ("observedGeneration", "conditions")}
    return {"type": "object", "description": "What became of it.", "properties": kept}


def _crd(
    *,
    kind: str,
    short: str,
    spec: Mapping[str, Any],
    status: Mapping[str, Any],
    description: str,
    columns: list[dict[str, Any]],
) -> dict[str, Any]:
    plural = kind.lower() + "s"
    schema = {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["gpu-sharing"],
            },
            "versions": [version],
        },
    }


def render(manifest: Mapping[str, Any]) -> str:
    """A manifest as a file's text; same manifest, same bytes."""
    text: str = yaml.dump(manifest, Dumper=_Plain, sort_keys=False, width=100, allow_unicode=True)
    return text


class _Plain(yaml.SafeDumper):
    """Writes equal parts out again instead of pointing at them."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  the signature is PyYAML's
        return True


def main() -> None:
    """Write the CRDs into a folder, one file each."""
    parser = argparse.ArgumentParser(description="Render the CRDs of gpu.sharing.")
    parser.add_argument("--write", metavar="DIR", type=Path, required=True)
    folder: Path = parser.parse_args().write
    folder.mkdir(parents=True, exist_ok=True)
    for manifest in crd_manifests():
        name = manifest["metadata"]["name"].partition(".")[0]
        (folder / f"{name}.yaml").write_text(render(manifest), encoding="utf-8")


if __name__ == "__main__":
    main()
