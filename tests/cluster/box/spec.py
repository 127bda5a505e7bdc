"""What one box is: written by the test run, read by the two programs that run it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

API_PORT: Final = 6443
"""Where the API server listens inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One node, with or without the control plane beside it.

    Attributes:
        folder: Everything that outlives the namespaces, as seen from both sides.
        programs: Path by program name.
        node: The Node's name, and the host name inside.
        address: The node's address inside.
        pods: The node's pod network, CIDR.
        server: The API server as programs inside reach it.
        control_plane: Whether etcd, API server, controller manager and scheduler run here.
        labels: Of the Node object.
        api_flags: Flags that the API server gets in addition.
        kubelet: Goes over the kubelet's configuration.
    """

    folder: Path
    programs: Mapping[str, Path]
    node: str = "node-0"
    address: str = "10.99.0.1"
    pods: str = "10.98.0.0/24"
    server: str = f"https://127.0.0.1:{API_PORT}"
    control_plane: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    api_flags: tuple[str, ...] = ()
    kubelet: Mapping[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> Path:
        """Certificates, keys and the programs' own kubeconfigs."""
        return self.folder / "keys"

    @property
    def logs(self) -> Path:
        """One file for each program."""
        return self.folder / "logs"

    @property
    def kubelet_dir(self) -> Path:
        """``/var/lib/kubelet`` inside."""
        return self.folder / "kubelet"

    @property
    def cdi_dir(self) -> Path:
        """``/run/cdi`` inside."""
        return self.folder / "cdi"

    @property
    def control_socket(self) -> Path:
        """Where the first process takes orders."""
        return self.folder / "control.sock"

    @property
    def boot_id_file(self) -> Path:
        """``/proc/sys/kernel/random/boot_id`` inside."""
        return self.folder / "boot_id"

    @property
    def image(self) -> Path:
        """The image that pods run, an OCI layout in a tar."""
        return self.folder / "image.tar"

    def save(self) -> Path:
        """Write it into its folder."""
        path = self.folder / "spec.json"
        path.write_text(json.dumps(dataclasses.asdict(self), default=str, indent=1))
        return path

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read it from its folder."""
        values = json.loads((folder / "spec.json").read_text())
        values["folder"] = folder
        values["programs"] = {name: Path(path) for name, path in values["programs"].items()}
        values["api_flags"] = tuple(values["api_flags"])
        return cls(**values)
