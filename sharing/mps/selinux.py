"""The label by which pods may use a folder of the host, where SELinux decides that.

Without it a container on such a host cannot reach its MPS daemon, and CUDA goes on without MPS.
Source: NVIDIA/k8s-device-plugin, which labels its MPS pipe folder so; container-selinux.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import structlog

ENABLED: Final = Path("/sys/fs/selinux/enforce")
"""There if SELinux is. Source: selinux(8)."""
ATTRIBUTE: Final = "security.selinux"
FOR_PODS: Final = b"system_u:object_r:container_file_t:s0\0"

_log: Final = structlog.get_logger()


def open_to_pods(folder: Path, enabled: Path = ENABLED) -> None:
    """Label a folder, if there is SELinux; what is made in it later inherits the label.

    A host that refuses is told of in the log: its policy may have an opinion of its own.
    """
    if not enabled.exists():
        return
    try:
        if os.getxattr(folder, ATTRIBUTE) == FOR_PODS:
            return
    except OSError:
        pass  # it has no label yet
    try:
        os.setxattr(folder, ATTRIBUTE, FOR_PODS)
    except OSError as error:
        _log.warning("folder was not labelled", folder=str(folder), reason=str(error))
