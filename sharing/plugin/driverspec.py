"""What a container needs of the driver, taken from the CDI spec that NVIDIA's toolkit generates.

``nvidia-ctk cdi generate`` writes a spec whose edits for every device are the driver's libraries,
control devices and hooks. A CDI device cannot refer to another spec, and to name two devices for
one container would let two edits of the same variable clash without a word. So those edits are
taken over into our own spec, without their variables: which devices are visible is ours to say.

Source: CDI specification, "containerEdits"; NVIDIA container toolkit, "nvidia-ctk cdi generate".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from sharing.errors import shown
from sharing.plugin.binding import ContainerEdits, Hook, Mount
from sharing.plugin.errors import PluginError

KIND: Final = "nvidia.com/gpu"
_MOST_BYTES: Final = 4 << 20
_EXAMPLE: Final = "nvidia-ctk cdi generate --output /var/run/cdi/nvidia.yaml"


def read(path: Path) -> ContainerEdits:
    """The driver's edits of a spec file.

    Raises:
        PluginError: It cannot be read, or is no spec of NVIDIA's.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES)
        document = yaml.safe_load(raw)
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _refused(path, "is neither YAML nor JSON") from error
    return driver_edits(document, path)


def driver_edits(document: object, path: Path) -> ContainerEdits:
    """The edits that a spec has for all of its devices.

    Args:
        document: The spec.
        path: Where it came from, for errors.

    Raises:
        PluginError: It is no spec of NVIDIA's.
    """
    if not isinstance(document, Mapping) or document.get("kind") != KIND:
        kind = document.get("kind") if isinstance(document, Mapping) else document
        raise _refused(path, f"is of kind {shown(kind)}")
    edits = document.get("containerEdits") or {}
    try:
        return ContainerEdits(
            device_nodes=tuple(str(one["path"]) for one in _list(edits, "deviceNodes")),
            mounts=tuple(_mount(one) for one in _list(edits, "mounts")),
            hooks=tuple(_hook(one) for one in _list(edits, "hooks")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise _refused(path, f"has edits of another form: {error!r}") from error


def _list(edits: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    found = edits.get(key) or ()
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise TypeError(key)
    return found


def _mount(one: Mapping[str, Any]) -> Mount:
    return Mount(
        host_path=str(one["hostPath"]),
        container_path=str(one["containerPath"]),
        read_only="ro" in (one.get("options") or ()),
    )


def _hook(one: Mapping[str, Any]) -> Hook:
    return Hook(
        name=str(one["hookName"]),
        path=str(one["path"]),
        args=tuple(map(str, one.get("args") or ())),
        env=tuple(map(str, one.get("env") or ())),
    )


def _refused(path: Path, wrong: str) -> PluginError:
    return PluginError(
        f"CDI spec {path}",
        wrong,
        expected=f"a spec of kind {KIND}, as NVIDIA's container toolkit generates it",
        fix="generate it, and mount its folder into the agent's container",
        example=_EXAMPLE,
    )
