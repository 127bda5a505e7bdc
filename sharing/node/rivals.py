"""Others who manage this node's GPUs: device plugins, drivers for claims, MIG managers.

A GPU that two plugins advertise is handed out twice, and a layout that two programs apply is
destroyed under pods. So they are noticed and told of, and nothing is shared with them. GPU Feature
Discovery only writes labels: it is no rival.

===========================  ==================================================================
NVIDIA's device plugin       live socket ``nvidia-<resource>.sock``
HAMi's device plugin         the same, on a Node with annotation ``hami.io/node-nvidia-register``
Aliyun's gpushare plugin     live socket ``aliyungpushare.sock``
NVIDIA's DRA driver          live socket ``plugins/gpu.nvidia.com/dra.sock``
any other plugin             the kubelet counts devices of it that are our GPUs
NVIDIA's MIG manager         labels ``nvidia.com/mig.config.state``, ``…gpu.deploy.mig-manager``
===========================  ==================================================================

Sources: NVIDIA/k8s-device-plugin (socket names); Project-HAMi/HAMi (a fork with the same names;
annotations); AliyunContainerService/gpushare-device-plugin; NVIDIA/mig-parted,
deployments/container; NVIDIA/gpu-operator (labels ``nvidia.com/gpu.deploy.*``). Any other plugin
is found by ``foreign``; here is only what can be told without knowing the GPUs.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

PLUGIN_SOCKETS: Final = "nvidia-*.sock"
ALIYUN_SOCKET: Final = "aliyungpushare.sock"
DRA_SOCKET: Final = "plugins/gpu.nvidia.com/dra.sock"
"""Below the kubelet's folder."""
MIG_CONFIG: Final = "nvidia.com/mig.config"
MIG_CONFIG_STATE: Final = "nvidia.com/mig.config.state"
MIG_MANAGER: Final = "nvidia.com/gpu.deploy.mig-manager"
DEVICE_PLUGIN: Final = "nvidia.com/gpu.deploy.device-plugin"
MPS_CAPABLE: Final = "nvidia.com/mps.capable"
LABELS: Final = (MIG_CONFIG, MIG_CONFIG_STATE, MIG_MANAGER, DEVICE_PLUGIN, MPS_CAPABLE)
"""Labels of a Node that tell of other programs."""
HAMI: Final = "hami.io/node-nvidia-register"
ANNOTATIONS: Final = (HAMI,)
"""Annotations of a Node that do."""
_DIAL_S: Final = 0.5
TWICE: Final = "so its GPUs would be handed out twice; nothing is offered until it is gone"


def live_plugin(folder: Path, beside: Iterable[str] = ()) -> str:
    """Which other plugin serves beside us, in a sentence; empty if none does.

    A socket that nobody answers on was left behind and counts for nothing.

    Args:
        folder: The kubelet's folder of device-plugin sockets.
        beside: Labels and annotations of the Node.
    """
    if live := _answering(folder.glob(PLUGIN_SOCKETS)):
        if HAMI in beside:
            return (
                f"HAMi's device plugin serves this node too ({live}), {TWICE}: take the label "
                "gpu=on, or what else its DaemonSet selects, off the Node"
            )
        return (
            f"NVIDIA's device plugin serves this node too ({live}), {TWICE}: label the Node "
            f"{DEVICE_PLUGIN}=false"
        )
    if live := _answering([folder / ALIYUN_SOCKET]):
        return (
            f"Aliyun's gpushare device plugin serves this node too ({live}), {TWICE}: take the "
            "label gpushare=true off the Node"
        )
    if live := _answering([folder.parent / DRA_SOCKET]):
        return (
            f"NVIDIA's DRA driver serves GPUs to claims on this node ({live}), {TWICE}: keep its "
            "kubelet plugin off the Node, or switch its GPUs off (resources.gpus.enabled=false)"
        )
    return ""


def mig_manager(labels: Mapping[str, str], *, honoured: bool) -> str:
    """Which other program changes MIG here, in a sentence; empty if none does.

    Args:
        labels: The Node's labels.
        honoured: Whether we act on ``nvidia.com/mig.config`` ourselves, and write its state.
    """
    remedy = (
        f"MIG is left as it is until then: label the Node {MIG_MANAGER}=false and remove "
        f"{MIG_CONFIG} and {MIG_CONFIG_STATE}"
    )
    if labels.get(MIG_MANAGER) == "true":
        return f"NVIDIA's MIG manager is deployed on this node ({MIG_MANAGER}=true); {remedy}"
    config, state = labels.get(MIG_CONFIG), labels.get(MIG_CONFIG_STATE)
    if honoured or not config or not state:
        return ""
    return f"a MIG manager acts on {MIG_CONFIG}={config} (its state is {state!r}); {remedy}"


def announced(labels: Mapping[str, str]) -> tuple[str, ...]:
    """What labels say will come to this node though it is not there yet; a sentence each."""
    found = []
    if labels.get(DEVICE_PLUGIN) == "true":
        found.append(
            f"the GPU Operator is asked to run NVIDIA's device plugin here ({DEVICE_PLUGIN}=true): "
            "set it to false"
        )
    if labels.get(MPS_CAPABLE) == "true":
        found.append(
            f"NVIDIA's MPS control daemon selects this node ({MPS_CAPABLE}=true) and would take "
            "GPUs for itself: set nvidia.com/gpu.deploy.mps-control-daemon=false, or take MPS out "
            "of the device plugin's configuration"
        )
    return tuple(found)


def _answering(paths: Iterable[Path]) -> str:
    return ", ".join(path.name for path in sorted(paths) if answers(path))


def answers(path: Path) -> bool:
    """Whether somebody listens on a unix socket."""
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.settimeout(_DIAL_S)
        probe.connect(str(path))
        return True
    return False
