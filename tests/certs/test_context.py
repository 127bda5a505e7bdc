"""Contexts that are swapped while they serve, seen from real clients over loopback."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509

from certs.bundle import Bundle
from certs.context import ClientCheck, HotContext, make_context
from certs.errors import CertificateError, Fault
from certs.leaf import Leaf
from certs.probe import probe
from certs.start import fresh_identity
from tests.certs.makers import RSA_KEY, SHORT_RSA_KEY, Recipe, pem_of

NAME = "localhost"
NUMBERS = itertools.count()


def now() -> datetime:
    return datetime.now(UTC)


def fresh(*names: str) -> tuple[Bundle, Leaf]:
    made = fresh_identity(names or [NAME], now())
    return Bundle.parse(made.ca_pem), Leaf.from_pem(made.leaf_pem, made.key_pem)


def rsa_pair() -> tuple[Bundle, Leaf]:
    # Authorities of one name and different keys make OpenSSL try the wrong one and fail.
    subject = f"rsa root {next(NUMBERS)}"
    root = Recipe(subject=subject, names=(), ca=True, now=now() - timedelta(hours=1))
    recipe = Recipe(key=RSA_KEY, names=(NAME,), now=now() - timedelta(hours=1))
    leaf = Leaf(certificate=recipe.sign(root), key=RSA_KEY)
    return Bundle.parse(pem_of(root.sign())), leaf


@dataclass
class Echo:
    """A server that answers each line with the same line."""

    hot: HotContext
    port: int

    async def shown(self, bundle: Bundle, **options: object) -> x509.Certificate:
        """What a client that trusts the bundle is shown."""
        return await probe("127.0.0.1", self.port, name=NAME, authorities=bundle, **options)  # type: ignore[arg-type]

    @asynccontextmanager
    async def connect(
        self, context: ssl.SSLContext, name: str | None = NAME
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname=name
        )
        try:
            yield reader, writer
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def serving(hot: HotContext) -> AsyncIterator[Echo]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=hot.outer)
    try:
        yield Echo(hot, server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await server.wait_closed()


def trusting(bundle: Bundle) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=bundle.to_pem().decode())
    return context


async def test_a_swap_from_rsa_to_ecdsa_leaves_no_trace_of_the_old_certificate() -> None:
    old_bundle, old = rsa_pair()
    new_bundle, new = fresh()
    hot = HotContext(now)
    hot.swap(old)
    async with serving(hot) as echo:
        assert await echo.shown(old_bundle) == old.certificate
        hot.swap(new)

        prefers_rsa = trusting(old_bundle.merge(new_bundle))
        prefers_rsa.maximum_version = ssl.TLSVersion.TLSv1_2
        prefers_rsa.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256")
        async with echo.connect(prefers_rsa) as (_, writer):
            der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)

        assert x509.load_der_x509_certificate(der) == new.certificate


async def test_open_connections_live_on_over_a_swap() -> None:
    bundle, old = fresh()
    hot = HotContext(now)
    hot.swap(old)
    async with serving(hot) as echo, echo.connect(trusting(bundle)) as (reader, writer):
        hot.swap(fresh()[1])

        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n"


@pytest.mark.parametrize(
    ("newcomer", "fault"),
    [
        pytest.param(lambda: fresh("other.test")[1], Fault.WRONG_NAME, id="wrong name"),
        pytest.param(
            lambda: Leaf(
                certificate=Recipe(names=(NAME,), now=now() - timedelta(days=20)).sign(),
                key=RSA_KEY,
            ),
            Fault.EXPIRED,
            id="expired",
        ),
        pytest.param(
            lambda: Leaf(certificate=rsa_pair()[1].certificate, key=fresh()[1].key),
            Fault.REFUSED,
            id="mismatch that got past reading",
        ),
        pytest.param(
            lambda: Leaf(
                certificate=Recipe(
                    key=SHORT_RSA_KEY, names=(NAME,), now=now() - timedelta(hours=1)
                ).sign(),
                key=SHORT_RSA_KEY,
            ),
            Fault.REFUSED,
            id="short key",
        ),
    ],
)
async def test_a_bad_newcomer_never_replaces_a_good_certificate(
    newcomer: Callable[[], Leaf], fault: Fault
) -> None:
    bundle, good = fresh()
    hot = HotContext(now)
    hot.swap(good)
    async with serving(hot) as echo:
        with pytest.raises(CertificateError) as caught:
            hot.swap(newcomer(), names=[NAME])

        assert caught.value.fault is fault
        assert hot.leaf == good
        for _ in range(3):
            assert await echo.shown(bundle) == good.certificate


async def test_a_newcomer_that_callers_do_not_trust_is_not_taken() -> None:
    bundle, good = fresh()
    hot = HotContext(now)
    hot.swap(good)

    with pytest.raises(CertificateError, match="not vouched for"):
        hot.swap(fresh()[1], authorities=bundle)

    assert hot.leaf == good


async def test_the_same_certificate_again_changes_nothing() -> None:
    _, leaf = fresh()
    hot = HotContext(now)

    assert hot.swap(leaf) is True
    assert hot.swap(leaf) is False


async def test_swapping_under_load_fails_no_handshake() -> None:
    pairs = [fresh() if number % 2 else rsa_pair() for number in range(6)]
    everybody = Bundle().merge(*(bundle for bundle, _ in pairs))
    hot = HotContext(now)
    hot.swap(pairs[0][1])
    seen: set[int] = set()
    calls = 0
    async with serving(hot) as echo, asyncio.TaskGroup() as group:
        finished, turn = asyncio.Event(), asyncio.Semaphore(0)

        async def call() -> None:
            nonlocal calls
            while not finished.is_set():
                seen.add((await echo.shown(everybody)).serial_number)
                calls += 1
                turn.release()

        for _ in range(4):
            group.create_task(call())
        for number in range(60):
            hot.swap(pairs[number % 6][1])
            for _ in range(4):
                await turn.acquire()
        finished.set()

    assert calls >= 240
    assert len(seen) == 6


async def test_before_any_certificate_handshakes_fail_and_the_server_lives_on() -> None:
    bundle, leaf = fresh()
    hot = HotContext(now)
    async with serving(hot) as echo:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with echo.connect(trusting(bundle)):
                pass
        hot.swap(leaf)

        assert await echo.shown(bundle) == leaf.certificate


@pytest.mark.parametrize("name", [NAME, None])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_clients_of_each_version_are_served_with_and_without_a_server_name(
    version: ssl.TLSVersion, name: str | None
) -> None:
    bundle, leaf = fresh()
    hot = HotContext(now)
    hot.swap(leaf)
    client = trusting(bundle)
    client.minimum_version = client.maximum_version = version
    client.check_hostname = name is not None
    client.set_alpn_protocols(["h2", "http/1.1"])
    async with serving(hot) as echo, echo.connect(client, name or "") as (reader, writer):
        writer.write(b"hello\n")

        assert await reader.readline() == b"hello\n"
        connection = writer.get_extra_info("ssl_object")
        assert connection.selected_alpn_protocol() == "http/1.1"


async def test_no_session_is_ever_resumed() -> None:
    bundle, leaf = fresh()
    hot = HotContext(now)
    hot.swap(leaf)
    client = trusting(bundle)
    async with serving(hot) as echo, echo.connect(client) as (reader, writer):
        writer.write(b"hello\n")
        await reader.readline()
        session = writer.get_extra_info("ssl_object").session

    assert session is None or not session.has_ticket


def test_old_protocols_are_not_offered() -> None:
    hot = HotContext(now)

    assert hot.outer.minimum_version is ssl.TLSVersion.TLSv1_2
    assert make_context(fresh()[1]).minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("issued_by", "welcome"), [("ours", True), ("others", False), ("nobody", False)]
)
async def test_a_client_check_lets_in_only_whom_its_authorities_issued(
    tmp_path: Path, issued_by: str, welcome: bool
) -> None:
    ours, others = trustme.CA(), trustme.CA()
    bundle, leaf = fresh()
    check = ClientCheck(authorities=Bundle.parse(ours.cert_pem.bytes()))
    hot = HotContext(now, client_check=check)
    hot.swap(leaf)
    client = trusting(bundle)
    if issued_by != "nobody":
        authority = ours if issued_by == "ours" else others
        authority.issue_cert("kube-apiserver.test").configure_cert(client)
    async with serving(hot) as echo:

        async def talk() -> bytes:
            async with echo.connect(client) as (reader, writer):
                writer.write(b"hello\n")
                return await reader.readline()

        assert await _line_of(talk) == (b"hello\n" if welcome else b"")


async def _line_of(talk: Callable[[], Awaitable[bytes]]) -> bytes:
    """What came back; a refusal shows itself only with the first read in TLS 1.3."""
    try:
        return await talk()
    except (ssl.SSLError, ConnectionError):
        return b""


@pytest.mark.parametrize(("calls", "welcome"), [("kube-apiserver", True), ("tenant", False)])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_caller_of_another_name_gets_no_byte_through(
    calls: str, welcome: bool, version: ssl.TLSVersion
) -> None:
    ours, (bundle, leaf) = trustme.CA(), fresh()
    check = ClientCheck(
        authorities=Bundle.parse(ours.cert_pem.bytes()), common_name="kube-apiserver"
    )
    hot = HotContext(now, client_check=check)
    hot.swap(leaf)
    client = trusting(bundle)
    client.maximum_version = version
    ours.issue_cert(common_name=calls).configure_cert(client)
    async with serving(hot) as echo:

        async def talk() -> bytes:
            async with echo.connect(client) as (reader, writer):
                writer.write(b"hello\n")
                return await reader.readline()

        assert await _line_of(talk) == (b"hello\n" if welcome else b"")


async def test_the_check_outlives_a_change_of_certificate() -> None:
    ours, (_, first), (bundle, second) = trustme.CA(), fresh(), fresh()
    check = ClientCheck(authorities=Bundle.parse(ours.cert_pem.bytes()), common_name="someone")
    hot = HotContext(now, client_check=check)
    hot.swap(first)
    hot.swap(second)
    client = trusting(bundle)
    ours.issue_cert(common_name="tenant").configure_cert(client)
    async with serving(hot) as echo:

        async def talk() -> bytes:
            async with echo.connect(client) as (reader, writer):
                writer.write(b"hello\n")
                return await reader.readline()

        assert await _line_of(talk) == b""


async def test_probe_judges_dates_by_the_clock_that_it_is_given() -> None:
    bundle, leaf = fresh()
    hot = HotContext(now)
    hot.swap(leaf)
    async with serving(hot) as echo:
        await echo.shown(bundle, now=now())
        with pytest.raises(CertificateError) as late:
            await echo.shown(bundle, now=leaf.not_after + timedelta(seconds=1))
        with pytest.raises(CertificateError) as early:
            await echo.shown(bundle, now=leaf.not_before - timedelta(seconds=1))
        with pytest.raises(CertificateError) as nobody:
            await echo.shown(Bundle(), now=now())

    # Beyond the authority's own end nobody is trusted, whatever the leaf says.
    assert late.value.fault is Fault.UNTRUSTED
    assert early.value.fault is Fault.NOT_YET_VALID
    assert nobody.value.fault is Fault.UNTRUSTED


async def test_probe_of_an_expired_leaf_under_a_living_authority_says_expired() -> None:
    start = now()
    root = Recipe(subject="long lived", names=(), ca=True, now=start - timedelta(days=1))
    recipe = Recipe(names=(NAME,), now=start - timedelta(hours=1), life=timedelta(days=5))
    hot = HotContext(now)
    hot.swap(Leaf(certificate=recipe.sign(root), key=recipe.key))
    bundle = Bundle.parse(pem_of(root.sign()))
    async with serving(hot) as echo:
        with pytest.raises(CertificateError) as late:
            await echo.shown(bundle, now=start + timedelta(days=6))
        with pytest.raises(CertificateError) as early:
            await echo.shown(bundle, now=start - timedelta(hours=2))

    assert (late.value.fault, early.value.fault) == (Fault.EXPIRED, Fault.NOT_YET_VALID)


@pytest.mark.parametrize(
    ("peer", "wanted", "accepted"),
    [
        ({"subject": ((("commonName", "kube-apiserver"),),)}, "kube-apiserver", True),
        ({"subject": ((("commonName", "tenant"),),)}, "kube-apiserver", False),
        ({"subject": ((("organizationName", "kube-apiserver"),),)}, "kube-apiserver", False),
        ({"subject": ((("commonName", "anything"),),)}, "", True),
        ({}, "", True),
        (None, "", False),
    ],
)
def test_a_client_check_compares_the_common_name(
    peer: dict[str, object] | None, wanted: str, accepted: bool
) -> None:
    assert ClientCheck(authorities=Bundle(), common_name=wanted).accepts(peer) is accepted


async def test_probe_tells_kinds_of_refusal_apart() -> None:
    bundle, leaf = fresh()
    hot = HotContext(now)
    hot.swap(leaf)
    async with serving(hot) as echo:
        with pytest.raises(CertificateError) as untrusted:
            await echo.shown(fresh()[0])
        with pytest.raises(CertificateError) as misnamed:
            await probe("127.0.0.1", echo.port, name="other.test", authorities=bundle)

    assert untrusted.value.fault is Fault.UNTRUSTED
    assert misnamed.value.fault is Fault.WRONG_NAME
