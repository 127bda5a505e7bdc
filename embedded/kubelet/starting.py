"""Starts containers: everything that happens between "admitted" and "running"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from embedded.kubelet.admission import Admission, RefusedError
from embedded.kubelet.cdi import UnresolvableError, resolve
from embedded.kubelet.endpoint import PluginError
from embedded.kubelet.environment import (
    ConfigError,
    Contents,
    Surroundings,
    contents_of,
    environment_of,
    sources_of,
)
from embedded.kubelet.podspec import Member
from embedded.kubelet.podstatus import pod_ip
from embedded.kubelet.runtime import Runtime
from embedded.kubelet.view import cdi_names, view_of
from sharing.cluster.errors import ApiError, NotFoundError
from sharing.cluster.kind import CONFIG_MAPS, SECRETS

if TYPE_CHECKING:
    from sharing.cluster.client import Client

CONFIG_ERROR: Final = "CreateContainerConfigError"
CREATE_ERROR: Final = "CreateContainerError"


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """Starts containers on one node.

    Attributes:
        client: For config maps and secrets.
        admission: For devices that are assigned late, and for the plugins behind it.
        runtime: Where containers run.
        cdi_folders: Where CDI spec files are.
        node: The node's name.
        address: The node's address.
    """

    client: Client
    admission: Admission
    runtime: Runtime
    cdi_folders: tuple[Path, ...]
    node: str
    address: str

    async def start(self, pod: Mapping[str, Any], member: Member) -> bool:
        """Start one container, or let it wait with the reason; whether it runs."""
        uid = str(pod["metadata"]["uid"])
        try:
            await self.admission.assign_late(pod, member)
            holdings = self.admission.ledger.of(uid, member.name)
            for resource, holding in holdings.items():
                await self.admission.plugins.pre_start(resource, holding.devices)
            around = Surroundings(
                pod=pod,
                node=self.node,
                host_ip=self.address,
                pod_ip=pod_ip(uid),
                contents=await self._contents(pod, member),
            )
            env = environment_of(member.spec, around)
        except (RefusedError, PluginError, ConfigError, ApiError) as error:
            self.runtime.wait(uid, member.name, reason=CONFIG_ERROR, message=str(error))
            return False
        try:
            edits = resolve(cdi_names(holdings), self.cdi_folders)
        except UnresolvableError as error:
            message = f"failed to create containerd container: {error}"
            self.runtime.wait(uid, member.name, reason=CREATE_ERROR, message=message)
            return False
        self.runtime.start(
            view_of(pod=pod, container=member.name, env=env, holdings=holdings, edits=edits)
        )
        return True

    async def _contents(self, pod: Mapping[str, Any], member: Member) -> Contents:
        """The config maps and secrets that the container refers to, those that exist."""
        namespace = str(pod["metadata"].get("namespace"))
        contents = {}
        for kind, name in sorted(sources_of(member.spec)):
            source = CONFIG_MAPS if kind == "ConfigMap" else SECRETS
            try:
                item = await self.client.get(source, name, namespace=namespace)
            except NotFoundError:
                continue
            contents[kind, name] = contents_of(item | {"kind": kind})
        return contents
