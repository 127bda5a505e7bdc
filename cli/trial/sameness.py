"""Whether two runs of a scenario tell the same, but for names and times: pure.

Which of several equal GPUs or nodes a pod lands on is the scheduler's choice, so nodes, UUIDs,
device numbers and folders are names too. What is compared for each pod: its whole way through
admission, its phase, and for each container the resource, the number of its devices, what its
GPUs are cut into, and what it sees; for the GPUs: layout, what NVML shows, shares; and who holds
how many shares of which resource.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

_NAMES: Final = (
    (re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"UUID::[0-9A-Za-z.+-]+"), "SHARE"),
    (re.compile(r"UUID_[0-9A-Za-z.+-]+(?=\.json)"), "SHARE"),
    (re.compile(r"(?:/[^/,=]+)+/mps/"), "MPS/"),
    (re.compile(r"(?<=/dev/nvidia)[0-9]+|(?<=/nvidia-cap)[0-9]+"), "N"),
)
_LISTS: Final = re.compile(r"\b(UUID|SHARE)(?:,\1)+")


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    """Where two runs' facts, as JSON values, differ; one sentence each.

    Args:
        one: The facts that are right.
        other: The facts of the run in question.
    """
    return tuple(_between(_comparable(one), _comparable(other), ""))


def _comparable(facts: Mapping[str, Any]) -> dict[str, Any]:
    layouts = {(gpu["node"], gpu["index"]): gpu["layout"] for gpu in facts["gpus"]}
    ordinals = {name: n for n, name in enumerate(dict.fromkeys(g["node"] for g in facts["gpus"]))}
    held = Counter(
        f"{share['resource']} by {share['holder']}"
        for gpu in facts["gpus"]
        for share in gpu["shares"]
        if share["holder"]
    )
    return {
        "pods": {pod["key"]: _pod(pod, layouts) for pod in facts["pods"]},
        "gpus": {f"{ordinals[gpu['node']]}.{gpu['index']}": _gpu(gpu) for gpu in facts["gpus"]},
        "holders": dict(held),
        "deviations": list(facts.get("deviations", ())),
    }


def _pod(pod: Mapping[str, Any], layouts: Mapping[tuple[str, int], str]) -> dict[str, Any]:
    node = pod["node"]
    containers = {
        each["name"]: {
            "resource": each["resource"],
            "devices": len(each["device_ids"]),
            "layouts": sorted(layouts.get((node, index), "") for index in each["gpus"]),
            "sees": {name: _anonymous(value) for name, value in each["sees"].items()},
            "device nodes": sorted(map(_anonymous, each["device_nodes"])),
            "mounts": [_anonymous(path) for path in each["mounts"]],
            "why": each["why"],
        }
        for each in pod["containers"]
    }
    told = {key: pod[key] for key in ("verdict", "code", "message", "warnings", "phase", "asked")}
    return {**told, "placed": node is not None, "containers": containers}


def _gpu(gpu: Mapping[str, Any]) -> dict[str, Any]:
    shares = [
        {"id": share["device_id"].partition("::")[2], **{k: share[k] for k in ("resource",
                                                                               "memory_mib")}}
        for share in gpu["shares"]
    ]  # fmt: skip
    return {**{key: gpu[key] for key in ("board", "layout", "observed")}, "shares": shares}


def _anonymous(text: str) -> str:
    for pattern, name in _NAMES:
        text = pattern.sub(name, text)
    return _LISTS.sub(r"\1s", text)


def _between(one: Any, other: Any, where: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            place = f"{where}: {key}" if where else str(key)
            if key not in one or key not in other:
                yield f"{place} is only in {'the second' if key in other else 'the first'} run"
            else:
                yield from _between(one[key], other[key], place)
    elif one != other:
        yield f"{where} is {other!r}, was {one!r}"
