"""What an agent works with, made as its settings say."""

from __future__ import annotations

from collections.abc import Callable

from sharing.cluster.client import Client
from sharing.mps.daemons import ComputeModes, MpsDaemons
from sharing.mps.program import program_of
from sharing.node.api import NodeApi
from sharing.node.inquiry import Inquiry
from sharing.node.podresources import SOCKET_NAME, PodResources
from sharing.node.settings import AgentSettings
from sharing.plugin.plugins import DevicePlugins


def node_api(client: Client, settings: AgentSettings, on_change: Callable[[], None]) -> NodeApi:
    """The agent's side of the API server; writes the state of NVIDIA's label if that is honoured.

    Args:
        client: The connection.
        settings: Which node.
        on_change: Called when something that the agent follows changed.
    """
    honours = settings.mig_configs is not None
    return NodeApi(client, settings.node, on_change, mig_config_state=honours)


def mps_daemons(
    settings: AgentSettings, modes: ComputeModes, on_change: Callable[[], None]
) -> MpsDaemons:
    """The MPS daemons of the node, NVIDIA's or stand-ins.

    Args:
        settings: Where they meet their clients, and which protocol they speak.
        modes: The driver's compute modes.
        on_change: Called when a daemon's phase changed.
    """
    return MpsDaemons(
        settings.mps_dir,
        program=program_of(settings.mps_version, simulated=settings.simulate is not None),
        compute_modes=modes,
        on_change=lambda _state: on_change(),
    )


def pod_resources(settings: AgentSettings, plugins: DevicePlugins) -> PodResources:
    """The kubelet's account of who holds what; not asked for while plugins answer an admission.

    Args:
        settings: Where its socket and its checkpoint lie.
        plugins: The node's.
    """
    return PodResources(
        settings.pod_resources_dir / SOCKET_NAME, settings.plugin_dir, plugins.admissions
    )


def inquiry(kubelet: PodResources, api: NodeApi | None) -> Inquiry:
    """How plugins learn who holds a share that the kubelet is about to hand out.

    Args:
        kubelet: Its own account.
        api: The API server, which knows the names of pods; None where there is none.
    """
    return Inquiry(kubelet, lambda: None if api is None else api.pods())
