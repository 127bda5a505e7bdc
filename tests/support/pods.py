"""Pods of every kind for property tests: ordinary, odd, and hostile.

Unknown fields stand at every level, keys hold slashes and tildes, maps are null, names collide,
and GPU requests of all forms appear on app containers, init containers and sidecars.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

JSON: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
"""Any JSON value."""

NAMES: Final = st.sampled_from(["main", "side", "init", "a", "status", "x-1"])
SHARES: Final = st.sampled_from(
    [
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.10gb",
        "nvidia.com/mig-2g.20gb",
        "gpu.sharing/mps-1of2",
        "gpu.sharing/mps-1of4",
        "gpu.sharing/timeslice-1of4",
        "gpu.sharing/milli-gpu",
        "team-a.gpu.sharing/mps-1of4",
        "nvidia.com/gpu.shared",
        "gpu.sharing/mps-1of3",
        "nvidia.com/gpumem",
        "nvidia.com/gpumem-percentage",
        "nvidia.com/gpu-10gb",
        "volcano.sh/vgpu-cores",
        "aliyun.com/gpu-mem",
    ]
)
AMOUNTS: Final = st.sampled_from(
    ["1", "1", 1, "2", "250m", "0.5", 0.25, "500m", "0", 0, "3", "1k", "-1", "x", "", None, "1.5"]
)
KEYS: Final = st.sampled_from(
    [
        "gpu.sharing/fraction",
        "gpu.sharing/memory",
        "gpu.sharing/mode",
        "gpu.sharing/mig-profile",
        "main.gpu.sharing/fraction",
        "side.gpu.sharing/memory",
        "main.gpu.sharing/mode",
        "status.gpu.sharing/grants",
        "status.gpu.sharing/odd~key",
        "a/b~c",
        "notgpu.sharing/x",
        "plain",
        "gpu-fraction",
        "gpu-memory",
        "gpu-fraction-num-devices",
        "nvidia.cdi.k8s.io/main.gpu-memory.request",
    ]
)
VALUES: Final = st.sampled_from(
    ["0.25", "1/3", "50%", "10Gi", "1g.10gb", "2g.20gb", "mps", "mig", "exclusive", "[]", "junk"]
)
VARIABLES: Final = st.fixed_dictionaries(
    {
        "name": st.sampled_from(
            ["NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "MINE", "PATH"]
        )
    },
    optional={
        "value": st.sampled_from(["all", "void", "none", "0", ""]),
        "valueFrom": st.just({"fieldRef": {"fieldPath": "metadata.name"}}),
        "odd": JSON,
    },
)


def _maps(keys: st.SearchStrategy[str], values: st.SearchStrategy[Any]) -> Any:
    return st.none() | st.dictionaries(keys, values, max_size=3)


AMOUNT_MAPS: Final = _maps(SHARES | st.sampled_from(["cpu", "memory", "amd.com/gpu"]), AMOUNTS)
CONTAINERS: Final = st.fixed_dictionaries(
    {"name": NAMES, "image": st.just("app:1")},
    optional={
        "resources": st.none()
        | st.fixed_dictionaries(
            {}, optional={"limits": AMOUNT_MAPS, "requests": AMOUNT_MAPS, "claims": JSON}
        ),
        "env": st.none() | st.lists(VARIABLES, max_size=4),
        "restartPolicy": st.just("Always"),
        "securityContext": st.sampled_from([{}, {"privileged": False}, {"privileged": True}]),
        "futureField": JSON,
    },
)
TERMS: Final = st.lists(
    st.sampled_from(
        [
            {},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
        ]
    ),
    max_size=3,
)
AFFINITIES: Final = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "requiredDuringSchedulingIgnoredDuringExecution": st.none()
                | st.fixed_dictionaries({"nodeSelectorTerms": TERMS}),
                "odd": JSON,
            },
        ),
        "podAffinity": JSON,
    },
)


def _pods(containers: Any, annotations: Any, affinities: Any) -> Any:
    metadata = st.fixed_dictionaries(
        {},
        optional={
            "name": st.just("web"),
            "generateName": st.just("web-"),
            "annotations": annotations,
            "labels": _maps(KEYS, VALUES),
            "futureField": JSON,
        },
    )
    spec = st.fixed_dictionaries(
        {"containers": containers},
        optional={
            "nodeSelector": _maps(st.sampled_from(["pool", "zone"]), st.just("a")),
            "tolerations": st.none() | st.lists(st.just({"operator": "Exists"}), max_size=1),
            "affinity": affinities,
            "schedulerName": st.sampled_from(["default-scheduler", "mine", ""]),
            "runtimeClassName": st.sampled_from(["kata", ""]),
            "resources": JSON,
            "futureField": JSON,
        },
    )
    return st.fixed_dictionaries({"metadata": metadata, "spec": spec}, optional={"odd": JSON})


def _split(pod: dict[str, Any], inits: int) -> dict[str, Any]:
    """Make some of a pod's containers init containers; one app container stays."""
    listed = pod["spec"]["containers"]
    cut = min(inits, len(listed) - 1)
    if cut:
        pod["spec"]["initContainers"] = listed[len(listed) - cut :]
        pod["spec"]["containers"] = listed[: len(listed) - cut]
    return pod


ODD_PODS: Final = st.builds(
    _split,
    _pods(st.lists(CONTAINERS, min_size=1, max_size=4), _maps(KEYS, VALUES), AFFINITIES),
    st.integers(0, 2),
)
"""Pods in which anything may be wrong."""

_ASKING: Final = st.fixed_dictionaries(
    {
        "limits": st.one_of(
            st.fixed_dictionaries(
                {"nvidia.com/gpu": st.sampled_from(["1", 1, "250m", 0.25, "500m", "2", "0"])},
                optional={"cpu": st.just("1"), "example.com/x~y": st.just("1")},
            ),
            st.fixed_dictionaries(
                {"gpu.sharing/mps-1of4": st.sampled_from(["1", 1, "2"])},
                optional={"memory": st.just("1Gi")},
            ),
            st.sampled_from(
                [
                    {"nvidia.com/mig-1g.10gb": "1"},
                    {"gpu.sharing/timeslice-1of4": 1},
                    {"team-a.gpu.sharing/mps-1of4": 1},
                    {"nvidia.com/gpu": "1", "gpu.sharing/milli-gpu": "7"},
                    {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "9000"},
                    {"nvidia.com/gpumem-percentage": "25", "nvidia.com/priority": "1"},
                    {"nvidia.com/gpu-10gb": 1},
                    {"nvidia.com/gpu.shared": "2"},
                    {"aliyun.com/gpu-mem": "9", "volcano.sh/vgpu-number": "0"},
                ]
            ),
        )
    },
    optional={"claims": JSON, "futureField": JSON},
)
_APPS: Final = st.fixed_dictionaries(
    {"name": NAMES, "image": st.just("app:1"), "resources": _ASKING | _ASKING | st.none()},
    optional={
        "env": st.none() | st.lists(VARIABLES, max_size=3),
        "restartPolicy": st.just("Always"),
        "futureField": JSON,
    },
)
_SIZES: Final = st.sampled_from(
    [
        {},
        {"a/b~c": "x"},
        {"gpu.sharing/fraction": "0.25"},
        {"gpu.sharing/fraction": "1/3"},
        {"gpu.sharing/memory": "10Gi"},
        {"gpu.sharing/memory": "25Gi", "gpu.sharing/mode": "mps"},
        {"gpu.sharing/mig-profile": "1g.10gb"},
        {"gpu.sharing/mode": "mig"},
        {"gpu-fraction": "0.25"},
        {"gpu-memory": "9000", "gpu-fraction-container-name": "main", "mps": "true"},
        {"status.gpu.sharing/grants": "[]", "status.gpu.sharing/odd~key": "x"},
    ]
)
ASKING_PODS: Final = st.builds(
    _split,
    _pods(
        st.lists(_APPS, min_size=1, max_size=3, unique_by=lambda one: one["name"]),
        _SIZES,
        AFFINITIES,
    ),
    st.integers(0, 1),
)
"""Pods that most policies can serve."""

PODS: Final = ASKING_PODS | ODD_PODS


def reordered(value: Any) -> Any:
    """The same JSON value with every map in the opposite order."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [reordered(member) for member in value]
    return value


OURS: Final = (
    "gpu.sharing/", "nvidia.com/gpu", "nvidia.com/mig-",
    "nvidia.com/priority", "volcano.sh/vgpu-", "aliyun.com/gpu-",
)  # fmt: skip


def _is_authors(variable: Any) -> bool:
    """Whether we never write a variable; a list called env may hold anything where it is odd."""
    return not isinstance(variable, dict) or variable.get("name") in ("MINE", "PATH")


def without_ours(value: Any, key: str = "") -> Any:
    """A pod without what we may write, so that all the rest can be compared."""
    if isinstance(value, dict):
        kept = {
            name: without_ours(member, name)
            for name, member in value.items()
            if not any(mark in name for mark in OURS)
        }
        return {name: member for name, member in kept.items() if member not in (None, {}, [])}
    if isinstance(value, list):
        members = [without_ours(member) for member in value]
        if key == "env":
            members = [one for one in members if _is_authors(one)]
        if key in ("matchExpressions", "tolerations"):
            members = [one for one in members if "gpu" not in str(one)]
        return [one for one in members if one not in (None, {}, [])]
    return value
