"""The request forms, the modes, and what each pair of them must become.

The layout offers every class that the table names on one node of eight H100.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sharing.mode import Mode

IMAGE = "registry.example/app:1"
LAYOUT: Final[Sequence[Mapping[str, Any]]] = [
    {"gpus": "0-1", "mode": "mig", "sizes": {"1g.10gb": 4, "3g.40gb": 1}},
    {"gpus": "2", "mode": "mps", "sizes": {"1of2": 1, "1of4": 2}},
    {"gpus": "3", "mode": "time-slicing", "sizes": {"1of2": 1, "1of4": 2}},
    {"gpus": "rest", "mode": "exclusive"},
]


def _namespace(mode: Mode) -> dict[str, Any]:
    labels = {"gpu.sharing/profile": f"p-{mode}"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": mode, "labels": labels}}


def _profile(mode: Mode) -> dict[str, Any]:
    spec: dict[str, Any] = {"mode": mode.value, "allowedModes": [mode.value]}
    if mode is Mode.MIG:
        spec["migProfile"] = "1g.10gb"
    elif mode is not Mode.EXCLUSIVE:
        spec["defaultSize"] = "1of4"
    return {
        "apiVersion": "gpu.sharing/v1alpha1", "kind": "SharingProfile",
        "metadata": {"name": f"p-{mode}"}, "spec": spec,
    }  # fmt: skip


OBJECTS: tuple[Mapping[str, Any], ...] = (
    {
        "apiVersion": "gpu.sharing/v1alpha1", "kind": "GPULayout", "metadata": {"name": "all"},
        "spec": {"nodeSelector": {"matchLabels": {"pool": "all"}}, "gpus": list(LAYOUT)},
    },
    *(_profile(mode) for mode in Mode),
    *(_namespace(mode) for mode in Mode),
)  # fmt: skip

QUARTER = {
    Mode.EXCLUSIVE: "nvidia.com/gpu",
    Mode.MIG: "nvidia.com/mig-1g.10gb",
    Mode.MPS: "gpu.sharing/mps-1of4",
    Mode.TIME_SLICING: "gpu.sharing/timeslice-1of4",
}
HALF = {
    Mode.EXCLUSIVE: "nvidia.com/gpu",
    Mode.MIG: "nvidia.com/mig-3g.40gb",
    Mode.MPS: "gpu.sharing/mps-1of2",
    Mode.TIME_SLICING: "gpu.sharing/timeslice-1of2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One form in one mode: the pod, and the resource that each container must get."""

    name: str
    mode: Mode
    manifest: dict[str, Any]
    expected: Mapping[str, str]


def _pod(
    name: str, mode: Mode, *, annotations: Mapping[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": mode.value, "annotations": dict(annotations or {})}
    return {"metadata": metadata, "spec": spec}


def container(name: str = "main", **limits: str) -> dict[str, Any]:
    """A container with GPU limits; ``gpu`` stands for nvidia.com/gpu."""
    made: dict[str, Any] = {"name": name, "image": IMAGE}
    if limits:
        made["resources"] = {"limits": {key.replace("gpu_", ""): v for key, v in limits.items()}}
    return made


def _asking(
    name: str = "main", resource: str = "nvidia.com/gpu", count: str = "1"
) -> dict[str, Any]:
    return {"name": name, "image": IMAGE, "resources": {"limits": {resource: count}}}


OWN: Final = {
    "NVIDIA_VISIBLE_DEVICES": "all",
    "CUDA_MPS_PIPE_DIRECTORY": "/elsewhere",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=999999M",
    "GPU_SHARING_SHARES": "somebody's",
}
"""What a pod might set to see more than its share."""


def cases() -> Iterator[Case]:
    """Every form in every mode."""
    for mode in Mode:
        yield from _cases(mode)


def _cases(mode: Mode) -> Iterator[Case]:
    bare = {"containers": [container()]}
    yield Case(
        name="none", mode=mode, manifest=_pod("none", mode, containers=[container()]), expected={}
    )
    own = [{"name": name, "value": value} for name, value in OWN.items()]
    yield Case(
        name="own-variables", mode=mode,
        manifest=_pod("own-variables", mode, containers=[_asking() | {"env": own}]),
        expected={"main": QUARTER[mode]},
    )  # fmt: skip
    small = QUARTER[mode]
    by_fraction = HALF[mode]
    yield Case(
        name="plain", mode=mode, manifest=_pod("plain", mode, containers=[_asking()]),
        expected={"main": small},
    )  # fmt: skip
    for name, text in (("decimal", "0.5"), ("ratio", "1/2"), ("percent", "50%")):
        if mode is Mode.MIG and name != "decimal":
            continue  # two 3g.40gb are all that the node has
        yield Case(
            name=name, mode=mode,
            manifest=_pod(name, mode, annotations={"gpu.sharing/fraction": text}, **bare),
            expected={"main": by_fraction},
        )  # fmt: skip
    yield Case(
        name="memory", mode=mode,
        manifest=_pod("memory", mode, annotations={"gpu.sharing/memory": "9000Mi"}, **bare),
        expected={"main": small},
    )  # fmt: skip
    yield Case(
        name="quantity", mode=mode,
        manifest=_pod("quantity", mode, containers=[_asking(count="100m")]),
        expected={"main": small},
    )  # fmt: skip
    yield Case(
        name="resource", mode=mode,
        manifest=_pod("resource", mode, containers=[_asking(resource=small)]),
        expected={"main": small},
    )  # fmt: skip
    yield Case(
        name="mode-key", mode=mode,
        manifest=_pod("mode-key", mode, annotations={"gpu.sharing/mode": mode.value},
                      containers=[_asking()]),
        expected={"main": small},
    )  # fmt: skip
    yield Case(
        name="per-container", mode=mode,
        manifest=_pod(
            "per-container", mode, annotations={"a.gpu.sharing/memory": "9000Mi"},
            containers=[container("a"), container("b")],
        ),
        expected={"a": small},
    )  # fmt: skip
    yield Case(
        name="init", mode=mode,
        manifest=_pod("init", mode, initContainers=[_asking("warm")], containers=[_asking()]),
        expected={"warm": small, "main": small},
    )  # fmt: skip
    sidecar = {**_asking("side"), "restartPolicy": "Always"}
    yield Case(
        name="sidecar", mode=mode,
        manifest=_pod("sidecar", mode, initContainers=[sidecar], containers=[_asking()]),
        expected={"side": small, "main": small},
    )  # fmt: skip
    if mode is Mode.MIG:
        yield Case(
            name="mig-profile", mode=mode,
            manifest=_pod("mig-profile", mode,
                          annotations={"gpu.sharing/mig-profile": "1g.10gb"}, **bare),
            expected={"main": "nvidia.com/mig-1g.10gb"},
        )  # fmt: skip
