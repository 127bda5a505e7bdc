"""Essence: a pod without what no verdict depends on, so that unlike pods have alike verdicts.

Images, commands, probes, labels and most variables make pods unlike and change nothing about
shares. What is left out is listed here; whatever is not listed stays, so a rule that looks at
another field of a pod needs no word here unless the field is listed. Places in lists stay as they
are, since patches and messages name them. What has not the shape that it should have stays whole.

Judging a pod's essence gives the verdict that judging the pod gives: that is this module's law,
and it is tested against pods and policies of every kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson

_BESIDE_POD: Final = frozenset(
    {
        "activeDeadlineSeconds",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "hostAliases",
        "hostname",
        "imagePullSecrets",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "serviceAccount",
        "serviceAccountName",
        "subdomain",
        "terminationGracePeriodSeconds",
    }
)
_BESIDE_CONTAINER: Final = frozenset(
    {
        "args",
        "command",
        "image",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "ports",
        "readinessProbe",
        "startupProbe",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "workingDir",
    }
)
_BESIDE_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_PLAIN_VOLUMES: Final = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
)
"""Volumes that hold no part of the host."""


def essence(pod: dict[str, Any]) -> bytes:
    """The essence of a new pod, as JSON; a pod itself.

    Raises:
        TypeError: The pod is nested too deeply to be written.
    """
    metadata, spec = pod.get("metadata"), pod.get("spec")
    if isinstance(metadata, dict):
        metadata = _metadata(metadata)
    if isinstance(spec, dict):
        spec = _spec(spec)
    return orjson.dumps({"metadata": metadata, "spec": spec})


def _metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    annotations, labels = metadata.get("annotations"), metadata.get("labels")
    if isinstance(labels, dict):
        labels = dict.fromkeys(labels)
    if isinstance(annotations, dict):
        annotations = {key: annotations[key] if _tells(key) else None for key in annotations}
    return {"annotations": annotations, "labels": labels}


def _tells(key: str) -> bool:
    """Whether verdicts may depend on an annotation's value, other systems' annotations included.

    Of all others only the key is kept: it may be a slip of the pen.
    """
    return "gpu" in key or "nvidia" in key or "cdi." in key


def _spec(spec: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in spec.items() if key not in _BESIDE_POD}
    for holder in ("containers", "initContainers"):
        listed = kept.get(holder)
        if isinstance(listed, list):
            kept[holder] = [_container(one) if isinstance(one, dict) else one for one in listed]
    volumes = kept.get("volumes")
    if isinstance(volumes, list):
        kept["volumes"] = _without_end(
            volume if _may_show_the_host(volume) else None for volume in volumes
        )
    return kept


def _container(container: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in container.items() if key not in _BESIDE_CONTAINER}
    variables, mounts = kept.get("env"), kept.get("volumeMounts")
    if isinstance(variables, list):
        kept["env"] = _variables(variables)
    if isinstance(mounts, list):
        kept["volumeMounts"] = _mounts(mounts)
    resources = kept.get("resources")
    if isinstance(resources, dict):
        kept["resources"] = {key: _amounts(value) for key, value in resources.items()}
    return kept


def _amounts(amounts: Any) -> Any:
    if not isinstance(amounts, dict):
        return amounts
    return {key: value for key, value in amounts.items() if key not in _BESIDE_RESOURCES}


def _variables(listed: list[Any]) -> list[Any]:
    """Variables that choose GPUs or say what is seen of them: NVIDIA's and CUDA's."""
    try:
        names = [variable["name"] for variable in listed]
        joined = "\n".join(names)
    except (TypeError, KeyError):
        return listed
    if "NVIDIA" not in joined and "CUDA" not in joined:
        return []
    return _without_end(
        variable if "NVIDIA" in name or "CUDA" in name else None
        for variable, name in zip(listed, names, strict=True)
    )


def _mounts(listed: list[Any]) -> list[Any]:
    try:
        return [{"mountPath": mount["mountPath"]} for mount in listed]
    except (TypeError, KeyError):
        return listed


def _may_show_the_host(volume: Any) -> bool:
    return not isinstance(volume, dict) or "hostPath" in volume or _PLAIN_VOLUMES.isdisjoint(volume)


def _without_end(members: Iterable[Any]) -> list[Any]:
    """A list whose members keep their places, cut where none follows that matters."""
    kept = list(members)
    while kept and kept[-1] is None:
        kept.pop()
    return kept
