"""The webhook as a process with other times, which can be told to kill itself at a step.

Everything is the real program's, put together as ``gpu-sharing webhook`` puts it together; only
the times of its rotation are others, and the hands of the rotation have a trigger. While the file
``arm`` says ``before write promote`` or ``after write promote``, the process that carries out such
a step ends by SIGKILL just before or just after its write. Whoever dies takes the trigger along, so
one replica dies of it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.certificates.times import Times
from certs.cluster import Cluster, Outcome, Place
from certs.context import HotContext
from certs.identity import service_names
from certs.servertime import TimedClient
from cli import logs
from webhook import program
from webhook.credential import SecretCredential
from webhook.settings import ServerSettings
from webhook.templatepaths import parse_template_paths

if TYPE_CHECKING:
    from certs.cluster import Look
    from certs.schedule import RotationSettings
    from certs.step import Act, Step
    from webhook.metrics import Metrics

NAMESPACE = "gpu-sharing"
SERVICE = "gpu-sharing-webhook"


def point_of(kind: type, act: Act) -> str:
    """What a trigger calls a step: two kinds of it may have one purpose."""
    return f"{kind.__name__.lower()} {act}"


class DeadlyCluster(Cluster):
    """Ends the process when the trigger says so."""

    trigger: Path

    async def carry_out(self, step: Step, look: Look, settings: RotationSettings) -> Outcome:
        """As the rotation's own, perhaps for the last time."""
        point = point_of(type(step), step.act)
        self._reached(f"before {point}")
        outcome = await super().carry_out(step, look, settings)
        if outcome is Outcome.DONE:
            self._reached(f"after {point}")
        return outcome

    def _reached(self, point: str) -> None:
        try:
            if self.trigger.read_text("ascii") != point:
                return
            self.trigger.rename(self.trigger.with_suffix(f".{os.getpid()}"))
        except FileNotFoundError:
            return  # it is not armed, or another replica was first
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--arm", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--health-port", type=int, required=True)
    parser.add_argument("--drain-delay", type=float, required=True)
    parser.add_argument("--drain-timeout", type=float, required=True)
    asyncio.run(_serve(parser.parse_args()))


async def _serve(given: argparse.Namespace) -> None:
    logs.configure()
    program.raise_file_limit()
    times = Times.load(given.times)
    client = TimedClient.from_kubeconfig(given.kubeconfig, user_agent="gpu-sharing-webhook")
    context = HotContext(client.time)
    cluster = DeadlyCluster(client, Place(), clock=client.time)
    cluster.trigger = given.arm

    def credential(metrics: Metrics) -> SecretCredential:
        return SecretCredential(
            cluster,
            service=(NAMESPACE, SERVICE),
            context=context,
            metrics=metrics,
            settings=times.settings(service_names(SERVICE, NAMESPACE)),
            pace=times.pace,
        )

    settings = ServerSettings(
        host=given.host,
        port=given.port,
        health_host="127.0.0.1",
        health_port=given.health_port,
        drain_delay_s=given.drain_delay,
        drain_timeout_s=given.drain_timeout,
    )
    await program.serve_live(
        client,
        program.Serving(
            settings=settings,
            context=context,
            credential=credential,
            announce=lambda _: None,
            template_paths=parse_template_paths({}),
        ),
    )


if __name__ == "__main__":
    main()
