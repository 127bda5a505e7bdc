"""``gpu-sharing webhook``: serve admission reviews, from watches or from a folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from cli import logs
from cli.main import Invocation

_PORT = click.IntRange(0, 65535)
_SECONDS = click.FloatRange(0, 86_400)


@click.command(short_help="Serve admission reviews.")
@click.option(
    "--static",
    "folder",
    metavar="DIR",
    help="Profiles, namespaces and nodes from the manifests in a folder; no API server is needed.",
)
@click.option("--kubeconfig", metavar="FILE", help="The cluster to watch, if not the usual one.")
@click.option("--context", default="", metavar="NAME", help="Context of the kubeconfig.")
@click.option("--cert", required=True, metavar="FILE", help="Certificate and its chain, PEM.")
@click.option("--key", required=True, metavar="FILE", help="The certificate's key, PEM.")
@click.option("--host", default="", metavar="ADDRESS", help="Where to listen.  [everywhere]")
@click.option("--port", type=_PORT, default=8443, show_default=True, help="0 for a free one.")
@click.option(
    "--health-host", default="", metavar="ADDRESS", help="Where probes come in.  [everywhere]"
)
@click.option(
    "--health-port",
    type=_PORT,
    help="Plain HTTP for probes and metrics.  [8080; none with --static]",
)
@click.option(
    "--drain-delay",
    type=_SECONDS,
    help="Seconds to serve on after SIGTERM before the port closes.  [5; 0 with --static]",
)
@click.option(
    "--drain-timeout",
    type=_SECONDS,
    help="Seconds to wait for connections to go.  [100; 10 with --static]",
)
@click.pass_obj
def webhook(  # noqa: PLR0913, PLR0917 - one parameter an option
    invocation: Invocation,
    folder: str | None,
    kubeconfig: str | None,
    context: str,
    cert: str,
    key: str,
    host: str,
    port: int,
    health_host: str,
    health_port: int | None,
    drain_delay: float | None,
    drain_timeout: float | None,
) -> None:
    r"""Serve admission reviews over HTTPS until SIGTERM, then drain.

    The address is printed when the server is ready. The certificate is looked at again whenever
    its files change.

    \b
      gpu-sharing webhook --static policies/ --cert tls.crt --key tls.key --port 8443
    """
    from certs.context import HotContext
    from certs.files import FileKeeper, PairFiles
    from sharing.cluster.client import Client
    from webhook import program
    from webhook.settings import ServerSettings
    from webhook.static import read_static
    from webhook.tls import utc_now

    if folder is not None and (kubeconfig is not None or context):
        raise click.UsageError("--static needs no cluster: leave out --kubeconfig and --context")
    is_static = folder is not None
    settings = ServerSettings(
        host=host,
        port=port,
        health_host=health_host,
        health_port=health_port if is_static or health_port is not None else 8080,
        drain_delay_s=_chosen(drain_delay, 0.0 if is_static else 5.0),
        drain_timeout_s=_chosen(drain_timeout, 10.0 if is_static else 100.0),
    )
    tls = HotContext(utc_now)
    files = PairFiles(certificate=Path(cert), key=Path(key))
    # Read before anything else happens: what a person wrote may be wrong.
    files.read()
    keeper = FileKeeper(files, tls)
    serving = program.Serving(settings=settings, context=tls, keeper=keeper, announce=click.echo)
    snapshot = read_static(Path(folder)) if folder is not None else None
    logs.configure(debug=invocation.debug)
    program.raise_file_limit()
    if snapshot is not None:
        asyncio.run(program.serve_static(snapshot, serving))
    else:
        path = Path(kubeconfig) if kubeconfig is not None else None
        client = Client.from_kubeconfig(path, context=context, user_agent="gpu-sharing-webhook")
        asyncio.run(program.serve_live(client, serving))


def _chosen(value: float | None, default: float) -> float:
    return default if value is None else value
