"""``gpu-sharing webhook``: serve admission reviews, from watches or from a folder."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from cli import logs
from cli.main import Invocation
from sharing.errors import InputError

if TYPE_CHECKING:
    from certs.context import HotContext
    from certs.servertime import TimedClient
    from sharing.cluster.client import Client
    from webhook.credential import CredentialSource
    from webhook.program import Serving
    from webhook.settings import ServerSettings
    from webhook.static import StaticSource

_PORT = click.IntRange(0, 65535)
_SECONDS = click.FloatRange(0, 86_400)
_OF_WORKERS: Final = frozenset({"port", "workers", "worker_name"})
"""Options that each worker is given its own of."""


class Asked(TypedDict):
    """What the options say; None where one was not given."""

    folder: str | None
    kubeconfig: str | None
    context: str
    cert: str | None
    key: str | None
    certs_secret: str | None
    service: str | None
    client_ca: str | None
    client_name: str | None
    host: str
    port: int
    health_host: str
    health_port: int | None
    drain_delay: float | None
    drain_timeout: float | None
    template_paths: str | None
    workers: int
    worker_name: str


@click.command(short_help="Serve admission reviews.")
@click.option(
    "--static",
    "folder",
    metavar="DIR",
    help="Profiles, namespaces and nodes from the manifests in a folder; no API server is needed.",
)
@click.option("--kubeconfig", metavar="FILE", help="The cluster to watch, if not the usual one.")
@click.option("--context", default="", metavar="NAME", help="Context of the kubeconfig.")
@click.option("--cert", metavar="FILE", help="Certificate and its chain, PEM.")
@click.option("--key", metavar="FILE", help="The certificate's key, PEM.")
@click.option(
    "--certs-secret",
    metavar="NAMESPACE/NAME",
    help="Instead of --cert and --key: the Secret that the replicas keep a certificate in.",
)
@click.option(
    "--service", metavar="NAMESPACE/NAME", help="With --certs-secret: what API servers call."
)
@click.option(
    "--client-ca",
    metavar="FILE",
    help="Let in only callers with a certificate of these authorities, PEM; API servers have to be "
    "told to show theirs.",
)
@click.option(
    "--client-name", metavar="NAME", help="With --client-ca: the one common name that may call."
)
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
@click.option(
    "--template-paths",
    metavar="FILE",
    help="Where kinds of your own keep their pod templates, such as PyTorchJob: "
    "[spec.pytorchReplicaSpecs.*.template].",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes that share the port, each with its own watches.",
)
@click.option("--worker-name", default="", hidden=True, help="Of one of several workers.")
@click.pass_obj
def webhook(invocation: Invocation, **asked: Unpack[Asked]) -> None:
    """Serve admission reviews over HTTPS until SIGTERM, then drain.

    The address is printed when the server is ready. Certificate and folder are looked at again
    whenever their files change.

    \b
      gpu-sharing webhook --static policies/ --cert tls.crt --key tls.key --port 8443
    """  # noqa: D301 - click wants the character itself
    if asked["folder"] is not None and (asked["kubeconfig"] is not None or asked["context"]):
        raise click.UsageError("--static needs no cluster: leave out --kubeconfig and --context")
    with _ended_at_once_by_sigterm():
        _run(invocation, asked)


def _run(invocation: Invocation, asked: Asked) -> None:
    """Read what the options name, and serve."""
    from webhook import program
    from webhook.static import StaticSource

    folder = asked["folder"]
    settings = _settings(asked)
    client = None if folder is not None else _client(asked["kubeconfig"], asked["context"])
    tls = _context(client, asked["client_ca"], asked["client_name"])
    credential = _credential(
        (asked["cert"], asked["key"]), (asked["certs_secret"], asked["service"]), client, tls
    )
    paths = _read_template_paths(asked["template_paths"])
    source = StaticSource(Path(folder), paths) if folder is not None else None
    logs.configure(debug=invocation.debug)
    program.raise_file_limit()
    if asked["workers"] > 1:
        _run_workers(asked["workers"], settings, invocation)
        return
    serving = program.Serving(
        settings=settings, context=tls, credential=credential, announce=click.echo,
        template_paths=paths, local_name=asked["worker_name"],
    )  # fmt: skip
    _serve(source, client, serving)


@contextmanager
def _ended_at_once_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the program while nothing is served yet that would have to be ended in order.

    The first process of a container hears no signal that it has not asked for
    (pid_namespaces(7)): without this a pod that is deleted while it starts would stay until it is
    killed.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _serve(source: StaticSource | None, client: Client | None, serving: Serving) -> None:
    from webhook import program

    if source is not None:
        asyncio.run(program.serve_static(source, serving))
    elif client is not None:
        asyncio.run(program.serve_live(client, serving))


def _settings(asked: Asked) -> ServerSettings:
    """The settings, with what was not chosen as it suits a folder or a cluster."""
    from webhook.settings import ServerSettings

    is_static = asked["folder"] is not None
    health_port = asked["health_port"]
    return ServerSettings(
        host=asked["host"],
        port=asked["port"],
        reuse_port=bool(asked["worker_name"]),
        health_host=asked["health_host"],
        health_port=health_port if is_static or health_port is not None else 8080,
        drain_delay_s=_chosen(asked["drain_delay"], 0.0 if is_static else 5.0),
        drain_timeout_s=_chosen(asked["drain_timeout"], 10.0 if is_static else 100.0),
    )


def _client(kubeconfig: str | None, context: str) -> TimedClient:
    from certs.servertime import TimedClient

    path = Path(kubeconfig) if kubeconfig is not None else None
    return TimedClient.from_kubeconfig(path, context=context, user_agent="gpu-sharing-webhook")


def _context(client: TimedClient | None, client_ca: str | None, name: str | None) -> HotContext:
    """What handshakes are served with, empty as yet; judged by API servers' time if there are any.

    Raises:
        InputError: The callers' authorities cannot be read.
    """
    from certs.bundle import Bundle
    from certs.cluster import utc_now
    from certs.context import ClientCheck, HotContext
    from certs.files import read_file

    if name is not None and client_ca is None:
        raise click.UsageError(
            "--client-name needs --client-ca: a name is worth what vouches for it"
        )
    check = None
    if client_ca is not None:
        subject = f"callers' authorities {client_ca}"
        authorities = Bundle.parse(
            read_file(Path(client_ca), "callers' authorities"), subject=subject
        )
        check = ClientCheck(authorities=authorities, common_name=name or "")
    return HotContext(utc_now if client is None else client.time, client_check=check)


def _credential(
    files: tuple[str | None, str | None],
    named: tuple[str | None, str | None],
    client: TimedClient | None,
    tls: HotContext,
) -> CredentialSource:
    if named == (None, None):
        return _from_files(*files, tls)
    return _from_secret(named, client, tls, given=any(files))


def _from_files(cert: str | None, key: str | None, tls: HotContext) -> CredentialSource:
    from certs.files import PairFiles
    from webhook.credential import FileCredential

    if cert is None or key is None:
        raise click.UsageError(
            "a certificate is needed: --cert FILE and --key FILE, or --certs-secret NAMESPACE/NAME "
            "and --service NAMESPACE/NAME; for a try: gpu-sharing certs issue --name localhost "
            "--out pair"
        )
    files = PairFiles(certificate=Path(cert), key=Path(key))
    # Read before anything else happens: what a person wrote may be wrong.
    files.read()
    return lambda _: FileCredential(files, tls)


def _from_secret(
    named: tuple[str | None, str | None],
    client: TimedClient | None,
    tls: HotContext,
    *,
    given: bool,
) -> CredentialSource:
    from certs.cluster import Cluster, Place
    from webhook.credential import SecretCredential

    if given or client is None or None in named:
        raise click.UsageError(
            "--certs-secret and --service go together, without --cert, --key and --static"
        )
    (namespace, secret), service = (_two_names(each) for each in named)
    place = Place(namespace=namespace, secret=secret)
    cluster = Cluster(client, place, clock=client.time)
    return lambda metrics: SecretCredential(cluster, service=service, context=tls, metrics=metrics)


def _two_names(text: str | None) -> tuple[str, str]:
    namespace, slash, name = (text or "").partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.UsageError(
            f"{text!r} is not understood; expected NAMESPACE/NAME, for example gpu-sharing/webhook"
        )
    return namespace, name


def _read_template_paths(file: str | None) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    from sharing.documents import read_file
    from webhook.templatepaths import parse_template_paths

    documents = read_file(Path(file)) if file is not None else ()
    try:
        # What is no mapping is refused by the parser, in its words.
        maps = [parse_template_paths(document.value) for document in documents]
    except InputError as error:
        raise error.about(str(file)) from error
    paths = dict(parse_template_paths({}))
    for added in maps:
        paths |= added
    return paths


def _run_workers(count: int, settings: ServerSettings, invocation: Invocation) -> None:
    from webhook.workers import Plan, run_workers

    given = click.get_current_context()
    options = [
        text
        for option in given.command.params
        if option.name not in _OF_WORKERS and given.params[option.name or ""] not in (None, "")
        for text in (option.opts[0], str(given.params[option.name or ""]))
    ]
    # Without the current folder on the path: it may hold anything.
    stem = [sys.executable, "-P", "-m", "cli.main", *["--debug"] * invocation.debug, "webhook"]

    def command(port: int, name: str) -> list[str]:
        return [*stem, *options, "--port", str(port), "--worker-name", name]

    plan = Plan(count=count, settings=settings, command=command, announce=click.echo)
    asyncio.run(run_workers(plan))


def _chosen(value: float | None, default: float) -> float:
    return default if value is None else value
