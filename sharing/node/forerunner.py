"""Serves the last list from an agent's first moment on, until the agent knows better.

Nothing here looks at the driver or asks the API server, and little has to be loaded for it: most of
an agent's start is loading the rest.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from sharing.node.journal import boot_id
from sharing.node.lastlist import LastList, Told
from sharing.node.record import make_folder
from sharing.node.rivals import live_plugin
from sharing.node.settings import AgentSettings
from sharing.plugin.binding import ShareBinding
from sharing.plugin.errors import PluginError
from sharing.plugin.plugins import DevicePlugins
from sharing.plugin.sharefile import ShareFiles

_STARTING: Final = "the node's agent is starting"
_log: Final = structlog.get_logger()


class Forerunner:
    """What the agent's listing takes over: the plugins, and what they were told.

    Args:
        settings: Where the kubelet's sockets and CDI files lie, and how to answer.

    Raises:
        UnavailableError: The state folder cannot be made.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings
        make_folder(settings.state_dir)
        self.files = ShareFiles(make_folder(settings.state_dir / "shares"))
        self.last = LastList(settings.state_dir / "offered.json", boot_id())
        self.plugins = DevicePlugins(
            settings.plugin_dir,
            cdi_dir=settings.cdi_dir,
            state_dir=make_folder(settings.state_dir / "cdi"),
            settings=settings.answers,
        )
        self.plugins.why_not_ready = _why_not_ready
        self.told: Told | None = None
        """What the kubelet was told; None where that is not known."""
        self._started = False

    async def start(self) -> None:
        """Tell the kubelet what an earlier agent told it last; does nothing the second time.

        Beside somebody else's plugin nothing is told.
        """
        if self._started:
            return
        self._started = True
        await self.plugins.start()
        if await asyncio.to_thread(live_plugin, self.settings.plugin_dir):
            return
        told = await asyncio.to_thread(self.last.recall)
        try:
            await asyncio.to_thread(self.files.write, (*told.listed, *told.held))
            await self.plugins.advertise(told.listed, held=told.held)
        except PluginError as error:  # the agent's first turn says it again, and what to do
            _log.warning("last list was not told", error=str(error))
        else:
            self.told = told


def _why_not_ready(binding: ShareBinding) -> str | None:
    return None if binding.mps is None else _STARTING
