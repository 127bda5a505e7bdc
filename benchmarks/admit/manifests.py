"""A folder of manifests as a team's repository holds them: YAML, one object a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.webhook.world import SPEC

NAMESPACE: Final = "research"
_POLICY: Final = (
    {
        "apiVersion": "gpu.sharing/v1alpha1",
        "kind": "SharingProfile",
        "metadata": {"name": "shares"},
        "spec": SPEC,
    },
    {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"gpu.sharing/profile": "shares"}},
    },
)
_NODES: Final = [
    {
        "name": "node-1",
        "gpus": "4xA100-80GB",
        "labels": {"pool": "research"},
        "layout": [
            {"gpus": "0-1", "mode": "mps", "sizes": {"1of4": 4}},
            {"gpus": "2", "mode": "mps", "sizes": {"1of2": 1, "1of8": 4}},
        ],
    }
]
_ASKS: Final[tuple[tuple[dict[str, str], dict[str, str]], ...]] = (
    ({}, {"nvidia.com/gpu": "1"}),
    ({"gpu.sharing/fraction": "1/8"}, {"nvidia.com/gpu": "1"}),
    ({"gpu.sharing/memory": "20Gi"}, {}),
    ({}, {"nvidia.com/gpu": "500m"}),
    ({}, {}),
)
"""Annotations of a pod, and limits of its first container."""


def write_manifests(folder: Path, count: int) -> tuple[Path, Path]:
    """Write so many workloads beside the policy that governs them.

    Args:
        folder: Where they go; created.
        count: How many workloads.

    Returns:
        The folder of the manifests, and the file of the nodes.
    """
    manifests, nodes = folder / "manifests", folder / "nodes.yaml"
    manifests.mkdir(parents=True)
    (manifests / "policy.yaml").write_text(yaml.safe_dump_all(_POLICY))
    nodes.write_text(yaml.safe_dump(_NODES))
    for number in range(count):
        path = manifests / f"{number // 100:03}" / f"workload-{number:05}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(_workload(number), sort_keys=False))
    return manifests, nodes


def _workload(number: int) -> dict[str, Any]:
    """A Pod, Deployment, Job or CronJob, each in its turn."""
    name = f"workload-{number}"
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"app": name}}
    template = _template(number)
    kinds: tuple[dict[str, Any], ...] = (
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **template},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {"template": template},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": metadata,
            "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template}}},
        },
    )
    made = kinds[number % len(kinds)]
    if made["kind"] == "Pod":
        made["metadata"] = metadata | template["metadata"]
    return made


def _template(number: int) -> dict[str, Any]:
    annotations, limits = _ASKS[number % len(_ASKS)]
    main = {
        "name": "main",
        "image": f"registry.example.com/research/app:{number}",
        "args": ["--config", "/etc/settings/run.yaml", f"--shard={number}"],
        "env": [{"name": f"SETTING_{index}", "value": f"{number}-{index}"} for index in range(8)],
        "resources": {"limits": {"cpu": "4", "memory": "16Gi", **limits}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    exporter = {"name": "metrics", "image": "registry.example.com/exporter:1"}
    return {
        "metadata": {"annotations": annotations | {"example.com/number": str(number)}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [main, exporter],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }
