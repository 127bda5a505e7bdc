"""``webhook --workers``: several processes on one port, and folders and lists that change."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from tests.support.admission import ask_patiently, pod, review

COMMAND = Path(sys.executable).parent / "gpu-sharing"
POLICY = """\
apiVersion: v1
kind: Namespace
metadata: {name: team-a, labels: {gpu.sharing/mode: mps}}
"""


@dataclass
class Running:
    process: asyncio.subprocess.Process
    url: str
    health: str
    trust: ssl.SSLContext
    log: Path

    async def ask(self, body: Any) -> dict[str, Any]:
        """An answer over a connection of its own."""
        connector = aiohttp.TCPConnector(ssl=self.trust, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as session:
            answer: dict[str, Any] = (await ask_patiently(session, self.url, body))["response"]
            return answer

    async def page(self, name: str) -> tuple[int, str]:
        """A page of the health port."""
        url = self.health.replace("readyz", name)
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status, await answer.text()

    async def reviews(self) -> dict[str, float]:
        """Patched reviews by worker."""
        _, text = await self.page("metrics")
        found = {}
        for line in text.splitlines():
            name, _, value = line.rpartition(" ")
            if name.startswith('gpu_sharing_webhook_reviews_total{outcome="patched",worker='):
                found[name.split('"')[3]] = float(value)
        return found

    def children(self) -> list[int]:
        """Processes that it started."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(number) for number in path.read_text().split()]

    def events(self) -> list[dict[str, Any]]:
        """Its log."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        async with asyncio.timeout(60):
            return await self.process.wait()


async def until(holds: Callable[[], Any], timeout_s: float = 60.0) -> None:
    """Return when a condition, which may be asked for, holds."""
    async with asyncio.timeout(timeout_s):
        while True:
            held = holds()
            if await held if asyncio.iscoroutine(held) else held:
                return
            await asyncio.sleep(0.1)


Start = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "static").mkdir()
    (tmp_path / "static" / "policy.yaml").write_text(POLICY)
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Start:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))
    issued.private_key_pem.write_to_path(str(folder / "tls.key"))

    @asynccontextmanager
    async def started(*more: str) -> AsyncIterator[Running]:
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(str(COMMAND), "webhook", "--static", str(folder / "static")),
                *("--cert", str(folder / "tls.crt"), "--key", str(folder / "tls.key")),
                *("--host", "127.0.0.1", "--port", "0"),
                *("--health-host", "127.0.0.1", "--health-port", "0", *more),
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert process.stdout is not None
        trust = ssl.create_default_context()
        authority.configure_trust(trust)
        said: dict[str, str] = {}
        try:
            async with asyncio.timeout(60):
                while "ready" not in said:
                    line = (await process.stdout.readline()).decode()
                    assert line, (folder / "log").read_text()
                    word, _, address = line.strip().partition(": ")
                    said[word] = address
            yield Running(process, said["ready"], said["health"], trust, folder / "log")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            process._transport.close()  # type: ignore[attr-defined]

    return started


async def test_workers_share_a_port_and_tell_their_health_as_one(start: Start) -> None:
    async with start("--workers", "2") as running:
        assert len(running.children()) == 2
        assert await running.page("readyz") == (200, "ok\n")
        assert await running.page("livez") == (200, "ok\n")

        async def both_served() -> bool:
            assert (await running.ask(review(pod())))["allowed"] is True
            return all(count > 0 for count in (await running.reviews()).values())

        await until(both_served)
        assert list(await running.reviews()) == ["0", "1"]
        _, text = await running.page("metrics")
        assert 'gpu_sharing_webhook_workers{state="ready"} 2.0' in text
        assert text.count("# TYPE gpu_sharing_webhook_reviews_total counter") == 1
        assert (await running.page("x"))[0] == 404

        assert await running.end() == 0


async def test_a_worker_that_dies_is_replaced_while_the_others_serve(start: Start) -> None:
    async with start("--workers", "2") as running:
        before = running.children()
        os.kill(before[0], signal.SIGKILL)
        # What waited in its queue dies with it; what comes later goes to the other.
        await until(lambda: not alive(before[0]))
        for _ in range(20):
            assert (await running.ask(review(pod())))["allowed"] is True

        async def replaced() -> bool:
            _, text = await running.page("metrics")
            return (
                len(set(running.children()) - set(before)) == 1
                and 'gpu_sharing_webhook_workers{state="ready"} 2.0' in text
                and 'gpu_sharing_webhook_worker_restarts_total{worker="' in text
            )

        await until(replaced)
        (died,) = [event for event in running.events() if event["event"] == "worker ended"]
        assert (died["level"], died["status"]) == ("error", -9)

        assert await running.end() == 0


async def test_a_worker_that_hangs_makes_the_program_unready_and_not_alive(start: Start) -> None:
    async with start("--workers", "2") as running:
        os.kill(running.children()[1], signal.SIGSTOP)

        statuses = [await running.page(name) for name in ("readyz", "livez")]

        assert [status for status, _ in statuses] == [503, 503]
        assert all("did not answer within 2 s" in text for _, text in statuses)
        os.kill(running.children()[1], signal.SIGCONT)
        assert await running.end() == 0


async def test_sigterm_drains_all_workers_without_a_lost_review(start: Start) -> None:
    async with start("--workers", "2", "--drain-delay", "0.5") as running:
        answered = 0

        async def call_on(session: aiohttp.ClientSession) -> None:
            nonlocal answered
            while True:
                try:
                    answer = await ask_patiently(session, running.url, review(pod()))
                except aiohttp.ClientConnectorError:
                    return
                assert answer["response"]["allowed"] is True
                answered += 1

        connector = aiohttp.TCPConnector(ssl=running.trust)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            asyncio.timeout(100),
            asyncio.TaskGroup() as group,
        ):
            for _ in range(8):
                group.create_task(call_on(session))
            await until(lambda: answered > 100)
            assert await running.end() == 0

    assert answered > 100
    events = [event["event"] for event in running.events()]
    assert events.count("ending began") == 3


async def test_while_workers_drain_the_program_says_so_and_a_second_signal_ends_it(
    start: Start,
) -> None:
    async with start("--workers", "2", "--drain-delay", "600") as running:
        running.process.send_signal(signal.SIGTERM)

        async def draining() -> bool:
            status, text = await running.page("readyz")
            return status == 503 and text.startswith("server: it is draining\n")

        await until(draining)
        assert await running.end() == 0


async def test_workers_end_with_a_program_that_is_killed(start: Start) -> None:
    async with start("--workers", "2") as running:
        children = running.children()
        running.process.kill()
        await running.process.wait()

        await until(lambda: not any(map(alive, children)))


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def refused(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [str(COMMAND), "webhook", "--static", str(folder / "static"), "--port", "0"]
    command += ["--cert", str(folder / "tls.crt"), "--key", str(folder / "tls.key"), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.usefixtures("start")
def test_what_workers_would_fail_at_is_one_sentence_before_they_start(folder: Path) -> None:
    (folder / "static" / "policy.yaml").write_text("a: [")

    done = refused(folder, "--workers", "2")

    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("start")
def test_a_port_that_somebody_has_is_told_by_the_program_itself(folder: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = refused(folder, "--workers", "2", "--host", "127.0.0.1", "--port", port)

    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot listen there" in done.stderr


async def test_a_folder_that_changes_is_taken_once_it_is_sound(start: Start, folder: Path) -> None:
    policy = folder / "static" / "policy.yaml"
    async with start() as running:

        async def granted() -> str:
            answer = await running.ask(review(pod()))
            return " ".join(answer.get("warnings", []))

        assert "mps-1of4" in await granted()
        policy.write_text(POLICY.replace("mode: mps", "mode: [mps"))

        async def is_refused() -> bool:
            _, text = await running.page("metrics")
            return "gpu_sharing_webhook_folder_current 0.0" in text

        await until(is_refused)
        # What was there before stays in force.
        assert "mps-1of4" in await granted()
        policy.write_text(POLICY.replace("mode: mps", "mode: time-slicing"))

        async def is_taken() -> bool:
            return "timeslice-1of4" in await granted()

        await until(is_taken)
        _, text = await running.page("metrics")
        assert "gpu_sharing_webhook_folder_current 1.0" in text
        assert await running.end() == 0
    said = [event for event in running.events() if "policies" in event["event"]]
    assert [event["event"] for event in said] == [
        "changed policies were not taken",
        "changed policies were taken",
    ]
    assert "policy.yaml: line" in said[0]["error"]


async def test_kinds_of_ones_own_are_told_by_a_file(start: Start, folder: Path) -> None:
    (folder / "paths.yaml").write_text("Notebook: [spec.template]")
    made = {
        "apiVersion": "x.io/v1",
        "kind": "Notebook",
        "metadata": {"name": "n"},
        "spec": {"template": {"spec": pod()["spec"]}},
    }
    asked = review(made, kind={"group": "x.io", "version": "v1", "kind": "Notebook"})
    async with start("--template-paths", str(folder / "paths.yaml")) as running:
        told = await running.ask(asked)
        assert await running.end() == 0
    async with start() as running:
        untold = await running.ask(asked)
        assert await running.end() == 0

    assert any("mps-1of4" in warning for warning in told["warnings"])
    assert "warnings" not in untold


@pytest.mark.usefixtures("start")
@pytest.mark.parametrize("content", ["- a", "Notebook: 3", "notebook: [spec]", "Notebook: [a..b]"])
def test_a_malformed_list_of_paths_is_one_sentence_that_names_the_file(
    folder: Path, content: str
) -> None:
    (folder / "paths.yaml").write_text(content)

    done = refused(folder, "--template-paths", str(folder / "paths.yaml"))

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {folder / 'paths.yaml'}: template paths")
    assert len(done.stderr.splitlines()) == 1
