"""Where the serving certificate comes from: files that somebody keeps, or a Secret that we keep.

Either puts what is good into the context that handshakes are served with, for as long as the
program runs, and says why callers would not accept it when they would not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from certs.cluster import Cluster
from certs.context import HotContext
from certs.files import FileKeeper, PairFiles
from certs.identity import service_names
from certs.keeper import Keeper, Pace
from certs.metrics import CertsMetrics
from certs.schedule import RotationSettings
from sharing.cluster.events import EventRecorder
from webhook.metrics import Metrics
from webhook.selfprobe import Callers
from webhook.tls import unready_reason

_FILES_POLL_S: Final = 2.0


class Credential(Protocol):
    """What keeps the served certificate good."""

    def start(self) -> None:
        """Serve what is there already, if anything is."""

    async def run(self) -> None:
        """Keep it good until cancelled."""

    def unready_reason(self) -> str:
        """Why callers would not accept what is served; empty where they do."""

    def callers(self) -> Callers | None:
        """Who calls and whom they trust; None where nobody has told us."""


CredentialSource = Callable[[Metrics], Credential]


class FileCredential:
    """A pair of files, looked at again whenever they change; somebody else renews it."""

    def __init__(self, files: PairFiles, context: HotContext) -> None:
        self._keeper = FileKeeper(files, context)
        self._context = context

    def start(self) -> None:
        """Serve what the files hold now.

        Raises:
            InputError: They hold no certificate that can be served.
        """
        self._keeper.start()

    async def run(self) -> None:
        """Look again and again."""
        await self._keeper.run(poll_s=_FILES_POLL_S)

    def unready_reason(self) -> str:
        """Whether there is one, and whether it is still valid."""
        return unready_reason(self._context)

    def callers(self) -> None:
        """Whoever renews the files cares for trust, and does not tell us."""
        return


class SecretCredential:
    """A Secret that all replicas keep together, and the bundles that make API servers trust it.

    Args:
        cluster: Where the Secret and the configurations are; its client is entered by the program
            before ``run``.
        service: Namespace and name of the Service that API servers call.
        context: What handshakes are served with.
        metrics: Where what is known of certificates appears.
        settings: The times of a rotation, if not the usual ones.
        pace: How often to look, if not as usual.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        service: tuple[str, str],
        context: HotContext,
        metrics: Metrics,
        settings: RotationSettings | None = None,
        pace: Pace | None = None,
    ) -> None:
        namespace, name = service
        settings = settings or RotationSettings(names=service_names(name, namespace))
        self._name = settings.names[0]
        self._recorder = EventRecorder(cluster.client, "gpu-sharing-webhook")
        self._keeper = Keeper(
            cluster,
            context,
            settings,
            metrics=CertsMetrics(metrics.registry),
            recorder=self._recorder,
            pace=pace,
        )

    def start(self) -> None:
        """Nothing is served before the Secret was read: handshakes fail, and probes say why."""

    async def run(self) -> None:
        """Keep the Secret, the bundles and what is served in step."""
        async with self._recorder:
            await self._keeper.run()

    def unready_reason(self) -> str:
        """Whether there is one, valid, and trusted by the live configurations."""
        return self._keeper.unready_reason()

    def callers(self) -> Callers:
        """API servers, by the bundles of the live configurations."""
        return Callers(name=self._name, bundles=self._keeper.trust)
