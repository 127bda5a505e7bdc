"""The policies that reviews are decided by: a folder for ``gpu-sharing webhook --static``.

The namespace and the profile that the reviews meet are the same in every world; a large one has
thousands of others around them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

SPEC: Final[dict[str, Any]] = {
    "mode": "mps",
    "defaultSize": "1of4",
    "allowedSizes": ["1of2", "1of4", "1of8"],
    "nodeSelector": {"pool": "research"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "accounting": True,
}
_LAYOUT: Final = [
    {"gpus": "0-1", "mode": "mps", "sizes": {"1of4": 4}},
    {"gpus": "2", "mode": "mps", "sizes": {"1of2": 1, "1of8": 4}},
]


def write_world(folder: Path, size: int, *, namespaces: int | None = None) -> Path:
    """Write a world of so many namespaces, profiles and nodes; returns its folder.

    Args:
        folder: Where it goes; created.
        size: How many of each kind.
        namespaces: How many namespaces, where there are more of them than of the rest.
    """
    folder.mkdir(parents=True)
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "gpu.sharing/v1alpha1",
            "kind": "SharingProfile",
            "metadata": {"name": f"profile-{index}"},
            "spec": SPEC,
        }
        for index in range(size)
    ]
    objects += [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": f"team-{index}",
                "labels": {
                    "gpu.sharing/profile": f"profile-{index % size}",
                    "kubernetes.io/metadata.name": f"team-{index}",
                },
            },
        }
        for index in range(namespaces or size)
    ]
    nodes = [
        {
            "name": f"node-{index}",
            "gpus": "4xA100-80GB",
            "labels": {"pool": "research", "kubernetes.io/hostname": f"node-{index}"},
            "layout": _LAYOUT,
        }
        for index in range(size)
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    (folder / "policies.json").write_text(json.dumps(listed))
    (folder / "nodes.json").write_text(json.dumps(nodes))
    return folder
