"""``gpu-sharing webhook``: the real process, asked over HTTPS, ended by signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
import trustme
from click.testing import CliRunner

from cli.main import cli
from embedded.apiserver import ApiServer
from sharing.api.crd import crd_manifests
from sharing.cluster.client import Client
from sharing.cluster.kind import CRDS, NAMESPACES
from tests.support.admission import ask_patiently, pod, review

COMMAND = Path(sys.executable).parent / "gpu-sharing"
POLICY = """\
apiVersion: v1
kind: Namespace
metadata: {name: team-a, labels: {gpu.sharing/profile: inference}}
---
apiVersion: gpu.sharing/v1alpha1
kind: SharingProfile
metadata: {name: inference}
spec: {modes: [mig, time-slicing], defaultSize: 1of8}
"""
NODES = """\
- name: n1
  gpus: 2xT4-16GB
  layout: [{gpus: all, mode: time-slicing, sizes: {1of8: 8}}]
"""


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> Path:
    """A folder with a static folder, a certificate and its key."""
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "policy.yaml").write_text(POLICY)
    (tmp_path / "static" / "nodes.yaml").write_text(NODES)
    write_pair(tmp_path, authority)
    return tmp_path


def write_pair(folder: Path, authority: trustme.CA) -> None:
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))
    issued.private_key_pem.write_to_path(str(folder / "tls.key"))


def arguments(files: Path, *more: str) -> list[str]:
    given = ["--static", str(files / "static"), "--cert", str(files / "tls.crt")]
    given += ["--key", str(files / "tls.key"), "--host", "127.0.0.1", "--port", "0"]
    return [str(COMMAND), "webhook", *given, *more]


@dataclass
class Running:
    process: asyncio.subprocess.Process
    url: str
    health: str
    trust: ssl.SSLContext

    def session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self.trust))

    async def end(self) -> tuple[int, str]:
        """Exit status and log, once the process has ended by itself."""
        assert self.process.stderr is not None
        async with asyncio.timeout(30):
            log = await self.process.stderr.read()
            return await self.process.wait(), log.decode()


Start = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def start(files: Path, authority: trustme.CA) -> Start:
    @asynccontextmanager
    async def started(*more: str) -> AsyncIterator[Running]:
        process = await asyncio.create_subprocess_exec(
            *arguments(files, "--health-host", "127.0.0.1", "--health-port", "0", *more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        trust = ssl.create_default_context()
        authority.configure_trust(trust)
        said: dict[str, str] = {}
        try:
            async with asyncio.timeout(30):
                while "ready" not in said:
                    line = (await process.stdout.readline()).decode()
                    assert line, (await process.stderr.read()) if process.stderr else ""
                    word, _, address = line.strip().partition(": ")
                    said[word] = address
            yield Running(process, said["ready"], said["health"], trust)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            process._transport.close()  # type: ignore[attr-defined]

    return started


async def test_it_serves_the_folder_prints_its_address_and_ends_on_sigterm(start: Start) -> None:
    async with start() as running:
        assert running.url.startswith("https://127.0.0.1:")
        async with running.session() as session:
            asked = review(pod(), uid="u-1")
            response = (await ask_patiently(session, running.url, asked))["response"]
            async with session.get(running.health) as ready:
                assert (ready.status, await ready.text()) == (200, "ok\n")
        running.process.send_signal(signal.SIGTERM)
        status, log = await running.end()

    assert (response["uid"], response["allowed"], "patch" in response) == ("u-1", True, True)
    assert status == 0
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["event"] for line in lines] == [
        "certificate was taken into service",
        "review was answered",
        "ending began",
    ]
    assert lines[1]["grants"] == ["gpu.sharing/timeslice-1of8"]


async def lose_none_while(
    running: Running, happens: Callable[[], Awaitable[None]], *, callers: int = 8
) -> int:
    """Call as API servers do while something happens; how many reviews were answered.

    A review that is turned away with Retry-After is asked again; whoever finds the port closed
    has no review on its way, and ends. Anything else that is no answer fails.
    """
    answered = 0

    async def call_on(session: aiohttp.ClientSession, ending: asyncio.Event) -> None:
        nonlocal answered
        while not ending.is_set():
            try:
                answer = await ask_patiently(session, running.url, review(pod()))
            except aiohttp.ClientConnectorError:
                return
            assert answer["response"]["allowed"] is True
            answered += 1

    async with running.session() as session, asyncio.timeout(100), asyncio.TaskGroup() as group:
        ending = asyncio.Event()
        calling = [group.create_task(call_on(session, ending)) for _ in range(callers)]
        while answered < 100:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)
        await happens()
        await asyncio.wait(calling, timeout=5)
        ending.set()
    return answered


async def test_sigterm_under_load_loses_no_review(start: Start) -> None:
    async with start("--drain-delay", "0.5") as running:

        async def end() -> None:
            running.process.send_signal(signal.SIGTERM)
            status, _ = await running.end()
            assert status == 0

        assert await lose_none_while(running, end) > 100


async def test_while_it_drains_it_says_so_and_a_second_signal_ends_it(start: Start) -> None:
    async with start("--drain-delay", "600") as running:
        running.process.send_signal(signal.SIGTERM)
        async with aiohttp.ClientSession() as session, asyncio.timeout(20):
            status, text = 200, ""
            while status == 200:
                async with session.get(running.health) as answer:
                    status, text = answer.status, await answer.text()
        assert (status, text) == (503, "server: it is draining\n")

        running.process.send_signal(signal.SIGTERM)

        assert (await running.end())[0] == 0


async def test_a_log_that_nobody_reads_stops_no_review(start: Start) -> None:
    async with start() as running, running.session() as session, asyncio.timeout(60):
        # Each leaves a line of some 300 bytes; a pipe holds 65,536.
        for number in range(400):
            await ask_patiently(session, running.url, review(pod(), uid=f"u-{number}"))


async def test_sigint_ends_it_without_delay(start: Start) -> None:
    async with start("--drain-delay", "600") as running:
        running.process.send_signal(signal.SIGINT)

        assert (await running.end())[0] == 0


async def test_changed_certificate_files_are_served_without_a_restart(
    start: Start, files: Path, authority: trustme.CA
) -> None:
    async with start() as running:

        async def serial() -> str:
            port = int(running.url.rsplit(":", 1)[1].split("/")[0])
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=running.trust, server_hostname="localhost"
            )
            found: str = writer.get_extra_info("peercert")["serialNumber"]
            writer.close()
            return found

        before = await serial()
        write_pair(files, authority)

        async with asyncio.timeout(30):
            while await serial() == before:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.2)
        running.process.send_signal(signal.SIGTERM)
        status, log = await running.end()

    assert status == 0
    assert "certificate was taken into service" in log


async def test_it_waits_for_a_cluster_and_then_serves_its_policies(
    files: Path, authority: trustme.CA, tmp_path: Path
) -> None:
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    async with ApiServer(tls=True) as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        process = await asyncio.create_subprocess_exec(
            *(str(COMMAND), "webhook", "--kubeconfig", str(kubeconfig)),
            *("--cert", str(files / "tls.crt"), "--key", str(files / "tls.key")),
            *("--host", "127.0.0.1", "--port", "0"),
            *("--health-host", "127.0.0.1", "--health-port", "0", "--drain-delay", "0"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        connector = aiohttp.TCPConnector(ssl=trust)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            asyncio.timeout(60),
            Client.from_kubeconfig(kubeconfig) as api,
        ):
            health = (await process.stdout.readline()).decode().strip().partition(": ")[2]
            async with session.get(health) as answer:
                # The kinds are not there yet, so nothing can be listed.
                assert (answer.status, "policies: " in await answer.text()) == (503, True)
            for definition in crd_manifests():
                await api.create(CRDS, definition)
            labels = {"gpu.sharing/mode": "time-slicing"}
            await api.create(NAMESPACES, {"metadata": {"name": "team-a", "labels": labels}})

            ready = (await process.stdout.readline()).decode().strip()

            assert ready.startswith("ready: https://127.0.0.1:")
            url = ready.partition(": ")[2]
            async with session.post(url, json=review(pod({"gpu.sharing/mode": "x"}))) as answer:
                response = (await answer.json())["response"]
            assert (response["allowed"], response["status"]["code"]) == (False, 422)
        process.terminate()
        async with asyncio.timeout(30):
            assert await process.wait() == 0


def refused_here(files: Path) -> tuple[int, str]:
    """As ``refused``, without a process: for what is refused before anything is started."""
    result = CliRunner().invoke(cli, arguments(files)[1:])
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    return result.exit_code, result.stderr


def refused(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("tls.crt", "", "certificate"),
        ("tls.crt", "nonsense", "certificate"),
        ("tls.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "tls.crt"),
        ("tls.key", "nonsense", "key"),
        ("static/policy.yaml", "a: [", "policy.yaml: line"),
        ("static/policy.yaml", POLICY.replace("defaultSize", "defaultsize"), "unknown field"),
        ("static/policy.yaml", POLICY.replace("mig,", "mug,"), "field modes[0]"),
        ("static/policy.yaml", "apiVersion: v1\nkind: Secret", "kind 'Secret' is neither policy"),
        ("static/policy.yaml", "- 3", "3 is no node"),
        ("static/policy.yaml", "a: 1", "policy.yaml"),
        ("static/nodes.yaml", NODES.replace("T4-16GB", "T5"), "'T5' is not in the catalogue"),
        ("static/nodes.yaml", NODES.replace("1of8: 8", "1of8: 9"), "its sizes sum to 9/8"),
    ],
)
def test_a_malformed_file_is_one_sentence_and_exit_2(
    files: Path, name: str, content: str, says: str
) -> None:
    (files / name).write_text(content)

    status, sentence = refused_here(files)

    assert status == 2
    assert says in sentence


@pytest.mark.parametrize("name", ["tls.crt", "tls.key"])
def test_a_missing_file_is_one_sentence_and_exit_2(files: Path, name: str) -> None:
    (files / name).unlink()

    status, sentence = refused_here(files)

    assert status == 2
    assert f"{name}: cannot be read: No such file or directory" in sentence


def test_a_certificate_of_another_key_is_refused(files: Path, authority: trustme.CA) -> None:
    other = authority.issue_cert("localhost").private_key_pem
    other.write_to_path(str(files / "tls.key"))

    status, sentence = refused_here(files)

    assert status == 2
    assert "does not belong to the key" in sentence


def test_an_expired_certificate_is_one_sentence_and_exit_2(
    files: Path, authority: trustme.CA
) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    issued = authority.issue_cert("localhost", not_after=yesterday)
    issued.cert_chain_pems[0].write_to_path(str(files / "tls.crt"))
    issued.private_key_pem.write_to_path(str(files / "tls.key"))

    status, sentence = refused(arguments(files))

    assert status == 2
    assert "expired" in sentence


@pytest.mark.parametrize("made", ["nothing", "a file", "an empty folder"])
def test_a_static_folder_that_is_none_is_refused(files: Path, made: str) -> None:
    for entry in (files / "static").iterdir():
        entry.unlink()
    if made != "an empty folder":
        (files / "static").rmdir()
    if made == "a file":
        (files / "static").write_text(POLICY)

    status, sentence = refused_here(files)

    assert status == 2
    assert "static" in sentence


def test_a_taken_port_is_one_sentence_and_exit_1(files: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, sentence = refused(arguments(files, "--port", port))

    assert status == 1
    assert "cannot listen there" in sentence


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a: [", "is not YAML"),
        ("apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: []", "there is no context"),
    ],
)
def test_a_malformed_kubeconfig_is_one_sentence_and_exit_2(
    files: Path, content: str, says: str
) -> None:
    (files / "kubeconfig").write_text(content)
    command = [str(COMMAND), "webhook", "--kubeconfig", str(files / "kubeconfig")]
    command += ["--cert", str(files / "tls.crt"), "--key", str(files / "tls.key")]

    status, sentence = refused([*command, "--port", "0", "--health-port", "0"])

    assert status == 2
    assert says in sentence


def test_a_folder_and_a_cluster_exclude_each_other(files: Path) -> None:
    done = subprocess.run(
        arguments(files, "--kubeconfig", "x"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )

    assert done.returncode == 2
    assert "--static needs no cluster" in done.stderr
