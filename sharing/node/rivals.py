"""Others who manage this node's GPUs: NVIDIA's device plugin and its MIG manager.

A GPU that two plugins advertise is handed out twice, and a layout that two programs apply is
destroyed under pods. So both are noticed and told of, and nothing is shared with them.

Sources: NVIDIA/k8s-device-plugin (sockets ``nvidia-<resource>.sock``); NVIDIA/mig-parted,
deployments/container (labels ``nvidia.com/mig.config`` and ``.state``); NVIDIA/gpu-operator
(label ``nvidia.com/gpu.deploy.mig-manager``).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

PLUGIN_SOCKETS: Final = "nvidia-*.sock"
MIG_CONFIG: Final = "nvidia.com/mig.config"
MIG_CONFIG_STATE: Final = "nvidia.com/mig.config.state"
MIG_MANAGER: Final = "nvidia.com/gpu.deploy.mig-manager"
LABELS: Final = (MIG_CONFIG, MIG_CONFIG_STATE, MIG_MANAGER)
"""Labels of a Node that tell of a MIG manager."""
_DIAL_S: Final = 0.5


def live_plugin(folder: Path) -> str:
    """Which plugin of NVIDIA's serves beside us, in a sentence; empty if none does.

    A socket that nobody answers on was left behind and counts for nothing.

    Args:
        folder: The kubelet's folder of device-plugin sockets.
    """
    live = [path.name for path in sorted(folder.glob(PLUGIN_SOCKETS)) if _answers(path)]
    if not live:
        return ""
    return (
        f"NVIDIA's device plugin serves this node too ({', '.join(live)}), so its GPUs would be "
        "handed out twice; nothing is offered until it is gone: label the Node "
        "nvidia.com/gpu.deploy.device-plugin=false"
    )


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


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.settimeout(_DIAL_S)
        probe.connect(str(path))
        return True
    return False
