"""Whether a pod's own variables could reach a GPU that is not its own; pure.

A container runtime takes the list of devices from what we hand it. Names of CDI devices cannot be
changed by a pod, and a CDI edit of a variable beats the pod's. What Allocate returns as a variable
is beaten by the pod's, and NVIDIA's runtime believes it unless it is told not to. So those
strategies are refused where that is not seen to.

Source: NVIDIA container toolkit, ``accept-nvidia-visible-devices-as-volume-mounts`` and
``accept-nvidia-visible-devices-envvar-when-unprivileged``; observed on Kubernetes 1.37 with
containerd.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from sharing.plugin.errors import PluginError
from sharing.plugin.settings import Strategy

TOOLKIT_CONFIG: Final = Path("/etc/nvidia-container-runtime/config.toml")
BY_MOUNTS: Final = "accept-nvidia-visible-devices-as-volume-mounts"
BY_VARIABLE: Final = "accept-nvidia-visible-devices-envvar-when-unprivileged"
_TRUST: Final = "or say that the webhook sees every pod of this node: --trust-pod-environment"


def refusal(strategy: Strategy, toolkit: str | None, where: Path) -> PluginError | None:
    """Why a strategy would let pods choose GPUs; None if it would not.

    Args:
        strategy: The strategy.
        toolkit: The container toolkit's configuration; None if it cannot be read.
        where: The file that it is in.
    """
    if strategy.uses_cdi:
        return None
    subject = f"device list strategy {strategy}"
    if strategy is Strategy.ENVVAR:
        return PluginError(
            subject,
            "lets a pod reach every GPU by a variable of its own, which beats ours",
            expected=f"a strategy that a pod cannot change, such as {Strategy.CDI_CRI}",
            fix=f"use {Strategy.CDI_CRI}, {_TRUST}",
            example=f"--device-list-strategy {Strategy.CDI_CRI}",
        )
    if toolkit is None:
        return PluginError(
            subject,
            f"needs a container toolkit that ignores pods' variables, and {where} cannot be read",
            fix=f"mount it into the agent's container, {_TRUST}",
            example=f"--toolkit-config {TOOLKIT_CONFIG}",
        )
    return _by_toolkit(subject, toolkit, where)


def _by_toolkit(subject: str, toolkit: str, where: Path) -> PluginError | None:
    try:
        settings = tomllib.loads(toolkit)
    except tomllib.TOMLDecodeError as error:
        return PluginError(subject, f"cannot be judged: {where} is no TOML: {error}")
    # The toolkit's defaults: mounts are ignored and variables believed.
    if settings.get(BY_MOUNTS) is not True:
        wrong, line = "ignores the mounts that name devices", f"{BY_MOUNTS} = true"
    elif settings.get(BY_VARIABLE) is not False:
        wrong, line = "believes the variables of unprivileged pods", f"{BY_VARIABLE} = false"
    else:
        return None
    return PluginError(
        subject,
        f"is not safe: the container toolkit {wrong}",
        expected=f"in {where}: {line}",
        fix=f"set it and restart the container runtime, {_TRUST}",
        example=line,
    )
