"""How one kubelet is set up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from embedded.errors import EmbeddedError
from embedded.kubelet.endpoint import DIAL_TIMEOUT_S, LONGEST_SOCKET
from embedded.kubelet.nodestatus import Machine
from embedded.kubelet.plugins import GRACE_S, KUBELET_SOCKET
from embedded.kubelet.podresources import SOCKET
from sharing.errors import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one kubelet is set up.

    Attributes:
        name: The node's name.
        root: Its folder; ``device-plugins``, ``pod-resources`` and ``views`` lie below.
        cdi_folders: Where CDI spec files are, the most important last.
        machine: What the node is, apart from devices.
        labels: Labels of the Node object.
        grace_s: How long a lost plugin's devices stay in capacity.
        dial_timeout_s: How long Register waits for the plugin's socket.
        retry_s: How long a container that could not start waits.
        beat_s: How often the node's conditions are written though nothing changed.
        sync_timeout_s: How long the first lists may take.
        tells_one_pod: Answer PodResources' Get, as kubelets do from 1.34 on.
        keyed_by_resource: Behave towards plugins as kubelets before PR #135437.
        align_numa: Prefer devices of one NUMA node.
        seed: What arbitrary choices of devices are drawn by.
    """

    name: str
    root: Path
    cdi_folders: tuple[Path, ...] = ()
    machine: Machine = field(default_factory=Machine)
    labels: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = GRACE_S
    dial_timeout_s: float = DIAL_TIMEOUT_S
    retry_s: float = 10.0
    beat_s: float = 300.0
    sync_timeout_s: float = 30.0
    tells_one_pod: bool = True
    keyed_by_resource: bool = False
    align_numa: bool = False
    seed: str = ""

    @property
    def plugin_folder(self) -> Path:
        """Where plugins put their sockets and find ``kubelet.sock``."""
        return self.root / "device-plugins"

    @property
    def pod_resources_socket(self) -> Path:
        """Where PodResources is served."""
        return self.root / "pod-resources" / SOCKET

    @property
    def views(self) -> Path:
        """Where one JSON file a container says what the container sees."""
        return self.root / "views"

    def check(self) -> None:
        """Refuse a folder in which sockets cannot be made.

        Raises:
            EmbeddedError: If its path is too long.
        """
        for path in (self.plugin_folder / KUBELET_SOCKET, self.pod_resources_socket):
            if len(bytes(path)) > LONGEST_SOCKET:
                raise EmbeddedError(
                    f"kubelet {self.name}",
                    f"the socket path {shown(str(path))} is too long",
                    expected=f"at most {LONGEST_SOCKET} bytes",
                    fix="choose a shorter folder",
                    example="/run/gs/n1",
                )
