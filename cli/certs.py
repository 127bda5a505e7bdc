"""``gpu-sharing certs``: make, check and rotate the webhook's certificates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from sharing.errors import UnavailableError
from sharing.printable import printable

if TYPE_CHECKING:
    from certs.cluster import Cluster
    from certs.report import Report

EXIT_NO: Final = 3
_POLL_S: Final = 0.5

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_IN_CLUSTER = _options(
    click.option("--kubeconfig", metavar="FILE", help="The cluster, if not the usual one."),
    click.option("--context", default="", metavar="NAME", help="Context of the kubeconfig."),
    click.option(
        "--namespace",
        default="gpu-sharing",
        show_default=True,
        envvar="POD_NAMESPACE",
        metavar="NAME",
        help="Where the Secret is.",
    ),
    click.option(
        "--secret",
        default="gpu-sharing-webhook-certs",
        show_default=True,
        metavar="NAME",
        help="The Secret with the certificates.",
    ),
    click.option(
        "--configuration",
        "configurations",
        multiple=True,
        default=["gpu-sharing"],
        show_default=True,
        metavar="NAME",
        help="Webhook configuration that has to trust them; may be repeated.",
    ),
)
_IN_FILES = _options(
    click.option(
        "--cert", metavar="FILE", help="A certificate and its chain, instead of a Secret."
    ),
    click.option("--key", metavar="FILE", help="The certificate's key."),
    click.option("--ca", metavar="FILE", help="The authorities that callers trust."),
    click.option(
        "--name", "names", multiple=True, metavar="NAME", help="A name that callers ask for."
    ),
)
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="The same facts for scripts.")


@click.group(short_help="Make, check and rotate the webhook's certificates.")
def certs() -> None:
    """Make, check and rotate the certificates that the webhook serves with.

    Nothing here is needed in daily life: the webhook renews its certificates itself.
    """


@certs.command()
@_IN_CLUSTER
@_IN_FILES
@_AS_JSON
def status(*, as_json: bool, **given: Any) -> None:
    """Show what is served, who trusts it, and until when.

    \b
      gpu-sharing certs status
      gpu-sharing certs status --cert tls.crt --key tls.key --ca ca.crt
    """  # noqa: D301 - click takes the character itself for its mark
    from certs.report import json_of, lines_of

    report = _report(given)
    if as_json:
        click.echo(json.dumps(json_of(report), indent=2))
        return
    for line in lines_of(report):
        click.echo(printable(line))
    for fault in report.faults():
        click.echo(click.style("fault", fg="red") + f"      {printable(fault)}")


@certs.command()
@_IN_CLUSTER
@_IN_FILES
@click.option("--connect", metavar="HOST:PORT", help="Also make a handshake with this server.")
@_AS_JSON
def verify(*, connect: str | None, as_json: bool, **given: Any) -> None:
    """Answer whether callers accept what is served. Exit status 3 means no.

    Checked are dates, names, the pair, and the chain under each bundle that has to trust it.

    \b
      gpu-sharing certs verify
      gpu-sharing certs verify --cert tls.crt --key tls.key --ca ca.crt --name my.ns.svc
    """  # noqa: D301 - click takes the character itself for its mark
    report = _report(given)
    faults = list(report.faults())
    if connect is not None:
        faults += asyncio.run(_handshakes(connect, report, tuple(given["names"])))
    if as_json:
        click.echo(json.dumps({"verified": not faults, "faults": faults}, indent=2))
    elif not faults:
        click.echo("verified: every caller accepts what is served")
    else:
        for fault in faults:
            click.echo(f"no: {printable(fault)}")
    if faults:
        raise click.exceptions.Exit(EXIT_NO)


@certs.command()
@_IN_CLUSTER
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    help="Wait until it is done; exit status 1 if it takes longer.",
)
@_AS_JSON
def rotate(*, wait_s: float | None, as_json: bool, **given: Any) -> None:
    """Ask the running webhook for a new authority and certificate.

    Bundles trust the new authority before anything is served with it, so no call fails. The old
    one stays trusted for a day.

    \b
      gpu-sharing certs rotate --wait 300
    """  # noqa: D301 - click takes the character itself for its mark
    asyncio.run(_rotate(given, wait_s, as_json=as_json))


@certs.command()
@click.option(
    "--name",
    "names",
    multiple=True,
    required=True,
    metavar="NAME",
    help="A host name or address under which the server is called; may be repeated.",
)
@click.option(
    "--out",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where ca.crt, tls.crt and tls.key are written.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=90,
    show_default=True,
    help="How long both certificates are valid.",
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
@_AS_JSON
def issue(*, names: tuple[str, ...], folder: Path, days: int, force: bool, as_json: bool) -> None:
    """Make an authority and a certificate of it, for `webhook --static`.

    The authority's key is not kept, so nothing else can ever be issued under it.

    \b
      gpu-sharing certs issue --name localhost --name 127.0.0.1 --out pki
      gpu-sharing webhook --static policies/ --cert pki/tls.crt --key pki/tls.key
    """  # noqa: D301 - click takes the character itself for its mark
    from certs.files import write_files
    from certs.start import fresh_identity

    now = datetime.now(UTC)
    made = fresh_identity(names, now, life=timedelta(days=days))
    contents = {"ca.crt": made.ca_pem, "tls.crt": made.leaf_pem, "tls.key": made.key_pem}
    write_files(folder, contents, replace=force)
    files = {name: str(folder / name) for name in contents}
    if as_json:
        click.echo(json.dumps({"files": files, "names": list(names)}, indent=2))
        return
    click.echo(f"callers trust  {files['ca.crt']}")
    click.echo(f"serve with     --cert {files['tls.crt']} --key {files['tls.key']}")


def _report(given: dict[str, Any]) -> Report:
    if any(given[option] for option in ("cert", "key", "ca", "names")):
        return _report_of_files(given)
    return asyncio.run(_with_cluster(given, _report_of_cluster))


def _report_of_files(given: dict[str, Any]) -> Report:
    from certs.bundle import Bundle
    from certs.files import PairFiles, read_file
    from certs.report import Report, Trusting

    if given["cert"] is None or given["key"] is None:
        raise click.UsageError("files need both --cert and --key; --ca and --name are optional")
    leaf, _ = PairFiles(certificate=Path(given["cert"]), key=Path(given["key"])).read()
    trusted, trusting = Bundle(), list[Trusting]()
    ca = given["ca"]
    if ca is not None:
        trusted = Bundle.parse(read_file(Path(ca), "authorities"), subject=f"authorities {ca}")
    for name in given["names"] or ([""] if ca is not None else []):
        where = f"callers of {name}" if name else "any caller"
        # Without authorities to go by, the certificate's own word is taken for its issuer.
        trusting.append(Trusting(where=where, host=name, bundle=trusted if ca else None))
    return Report(now=datetime.now(UTC), current=leaf, trusted=trusted, trusting=tuple(trusting))


async def _report_of_cluster(cluster: Cluster) -> Report:
    from certs.report import Report, trusting_of

    look = await cluster.look()
    return Report(
        now=cluster.clock(),
        current=look.stored.current,
        next=look.stored.next,
        trusted=look.stored.trusted,
        trusting=trusting_of(look.configurations),
        oddities=look.stored.oddities,
    )


async def _with_cluster(given: dict[str, Any], use: Callable[[Cluster], Awaitable[T]]) -> T:
    from certs.cluster import Cluster, Place
    from sharing.cluster.client import Client

    path = Path(given["kubeconfig"]) if given["kubeconfig"] is not None else None
    place = Place(
        namespace=given["namespace"],
        secret=given["secret"],
        configurations=tuple(given["configurations"]),
    )
    client = Client.from_kubeconfig(path, context=given["context"], user_agent="gpu-sharing-certs")
    async with client:
        return await use(Cluster(client, place))


async def _handshakes(address: str, report: Report, names: tuple[str, ...]) -> list[str]:
    """What keeps handshakes with a running server from verifying, under each bundle."""
    from certs.errors import CertificateError
    from certs.probe import probe

    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - ports
        raise click.UsageError(f"--connect wants HOST:PORT, not {address!r}")
    places = {
        (one.host or host, one.bundle) for one in report.trusting if one.bundle is not None
    } or {(name, report.trusted) for name in names or (host,)}
    faults = []
    for name, bundle in sorted(places, key=lambda place: (place[0], place[1].to_pem())):
        if not len(bundle):
            faults.append(f"server {address}: nobody trusts it, for there is no authority")
            continue
        try:
            await probe(host.strip("[]"), int(port), name=name, authorities=bundle)
        except CertificateError as error:
            faults.append(str(error))
    return faults


async def _rotate(given: dict[str, Any], wait_s: float | None, *, as_json: bool) -> None:
    wish = datetime.now(UTC).isoformat()

    async def ask(cluster: Cluster) -> bool:
        before = (await cluster.look()).stored.current
        await cluster.ask(wish)
        if wait_s is None:
            return False
        try:
            async with asyncio.timeout(wait_s):
                while True:
                    if await _is_done(cluster, wish):
                        return True
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            _give_up(wait_s, had_one=before is not None)

    done = await _with_cluster(given, ask)
    if as_json:
        click.echo(json.dumps({"asked": wish, "done": done}, indent=2))
    elif done:
        click.echo("rotated: the new certificate is served")
    else:
        click.echo("asked for; watch it with: gpu-sharing certs status")


async def _is_done(cluster: Cluster, wish: str) -> bool:
    stored = (await cluster.look()).stored
    return stored.answered == wish and stored.next is None


def _give_up(wait_s: float, *, had_one: bool) -> NoReturn:
    raise UnavailableError(
        "rotation",
        f"is not done after {wait_s:g} s",
        fix="look at gpu-sharing certs status and at the webhook's log; an older authority may "
        "have to retire first"
        if had_one
        else "check that a webhook runs: it makes the certificates",
    )
