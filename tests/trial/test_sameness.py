"""Two runs are the same where only names and times differ, and what differs is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.trial.sameness import differences

UUID = "GPU-9e849abf-8720-5017-ad4c-942d0a9a71a9"
OTHER = "GPU-11111111-2222-3333-4444-555555555555"


def facts(*, node: str = "a", uuid: str = UUID, number: int = 1) -> dict[str, Any]:
    share = f"{uuid}::{number}"
    container = {
        "name": "main", "resource": "gpu.sharing/mps-1of4", "device_ids": [share], "gpus": [0],
        "sees": {
            "NVIDIA_VISIBLE_DEVICES": uuid, "GPU_SHARING_SHARES": share,
            "CUDA_MPS_PIPE_DIRECTORY": f"/tmp/{node}/mps/{uuid}/pipe",
        },
        "device_nodes": [f"/dev/nvidia{number}", f"/dev/nvidia-caps/nvidia-cap{number}2"],
        "mounts": [f"/etc/x/{uuid}_{number}.json", f"/tmp/{node}/mps/{uuid}/pipe"], "why": "asked",
    }  # fmt: skip
    pod = {
        "key": "lab/p", "about": "", "asked": "one", "verdict": "patch", "code": 201,
        "message": "", "warnings": ["main: as asked"], "phase": "Running", "node": node,
        "containers": [container],
    }  # fmt: skip
    shares = [
        {
            "device_id": f"{uuid}::{n}", "resource": "gpu.sharing/mps-1of4", "memory_mib": 1,
            "holder": "lab/p/main" if n == number else None,
        }
        for n in range(4)
    ]  # fmt: skip
    gpu = {
        "node": node, "index": 0, "uuid": uuid, "board": "T4-16GB", "layout": "mps 4x 1of4",
        "observed": "whole", "shares": shares,
    }  # fmt: skip
    return {"pods": [pod], "gpus": [gpu], "elapsed_s": {"start": 1.0}, "deviations": []}


def test_other_names_and_times_are_no_difference() -> None:
    other = facts(node="worker-1", uuid=OTHER, number=3) | {"elapsed_s": {"start": 9.0}}

    assert differences(facts(), other) == ()


def changed(path: str, value: object) -> dict[str, Any]:
    made: Any = json.loads(json.dumps(facts()))
    *steps, last = [int(word) if word.isdigit() else word for word in path.split(".")]
    place = made
    for step in steps:
        place = place[step]
    place[last] = value
    return dict(made)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("pods.0.verdict", "deny", "lab/p: verdict is 'deny', was 'patch'"),
        ("pods.0.warnings", [], "lab/p: warnings is [], was"),
        ("pods.0.phase", "Failed", "phase is 'Failed'"),
        ("pods.0.node", None, "placed is False"),
        ("pods.0.key", "lab/q", "lab/q is only in the second run"),
        ("pods.0.containers.0.device_ids", [], "devices is 0, was 1"),
        ("pods.0.containers.0.sees", {}, "NVIDIA_VISIBLE_DEVICES is only in the first run"),
        ("pods.0.containers.0.mounts", [], "was ['/etc/x/SHARE.json', 'MPS/UUID/pipe']"),
        ("pods.0.containers.0.device_nodes", ["/dev/nvidia0"], "device nodes is ['/dev/nvidiaN']"),
        ("gpus.0.observed", "MIG", "gpus: 0.0: observed is 'MIG'"),
        ("gpus.0.shares", [], "shares is []"),
        ("gpus.0.shares.1.holder", None, "holders: gpu.sharing/mps-1of4 by lab/p/main is only in"),
        ("deviations", ["x"], "deviations is ['x']"),
    ],
)
def test_whatever_else_differs_is_told(path: str, value: object, says: str) -> None:
    found = differences(facts(), changed(path, value) | {})

    assert any(says in text for text in found), found
