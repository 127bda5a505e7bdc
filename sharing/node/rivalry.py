"""Looking out for others who manage this node's GPUs; what they look like is in ``rivals``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sharing.node.api import NodeApi
from sharing.node.foreign import foreign_plugin
from sharing.node.rivals import live_plugin, mig_manager
from sharing.node.settings import AgentSettings
from sharing.node.target import Offered


class Rivals:
    """Who else manages the GPUs of this node, as of the last look.

    Args:
        settings: Where the kubelet's sockets lie.
        api: The Node's labels; None where there is no API server.
    """

    def __init__(self, settings: AgentSettings, api: NodeApi | None) -> None:
        self.plugin = ""
        """In a sentence; empty if there is none."""
        self.mig_manager = ""
        self._folder = settings.plugin_dir
        self._honoured = settings.mig_configs is not None
        self._api = api

    async def look(self, offered: Iterable[Offered] = (), gpus: Iterable[str] = ()) -> None:
        """See who is there now.

        Args:
            offered: Everything that the kubelet may hand out, whoever listed it.
            gpus: The node's GPUs by UUID.
        """
        labels = {} if self._api is None else self._api.foreign_labels
        live = await asyncio.to_thread(live_plugin, self._folder, labels)
        self.plugin = live or foreign_plugin(offered, gpus)
        self.mig_manager = mig_manager(labels, honoured=self._honoured)
