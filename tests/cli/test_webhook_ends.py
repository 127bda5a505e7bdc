"""SIGTERM ends the webhook whenever it comes: also before anything is served."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner

from certs.files import write_files
from certs.start import fresh_identity
from cli.main import cli
from tests.support.admission import until

ENDS_S = 15.0
_CAUGHT = "SigCgt:"


@pytest.fixture
def silent_server(tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig of an API server that accepts and never answers."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            "{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: "
            f"{{server: '{address}'}}}}], contexts: [{{name: a, context: {{cluster: a, user: a}}}}]"
            ", users: [{name: a, user: {token: t}}]}"
        )
        yield kubeconfig


def command(kubeconfig: Path) -> list[str]:
    return [
        sys.executable, "-m", "cli.main", "webhook", "--kubeconfig", str(kubeconfig),
        "--certs-secret", "a/b", "--service", "a/b", "--host", "127.0.0.1", "--port", "0",
        "--health-host", "127.0.0.1", "--health-port", "0", "--drain-delay", "0",
        "--drain-timeout", "1",
    ]  # fmt: skip


def catches_sigterm(pid: int) -> bool:
    """Whether a process has asked for SIGTERM (proc(5), ``SigCgt``)."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(_CAUGHT):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def children_of(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def ended(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(ENDS_S):
        await process.communicate()
    assert process.returncode is not None
    return process.returncode


async def test_readiness_names_all_that_it_waits_for(silent_server: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *command(silent_server), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        said = (await process.stdout.readline()).decode()
    async with (
        aiohttp.ClientSession() as session,
        session.get(said.strip().removeprefix("health: ")) as response,
    ):
        lines = (await response.text()).splitlines()
    process.send_signal(signal.SIGTERM)

    assert response.status == 503
    assert [line.partition(":")[0] for line in lines] == ["policies", "certificate", "handshake"]
    assert await ended(process) == 0


@pytest.mark.parametrize("later_s", [0.0, 0.8])
async def test_it_ends_in_good_order_before_the_api_server_has_answered(
    silent_server: Path, later_s: float
) -> None:
    process = await asyncio.create_subprocess_exec(
        *command(silent_server), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    await until(lambda: catches_sigterm(process.pid), timeout_s=60)
    await asyncio.sleep(later_s)  # two moments of its start

    process.send_signal(signal.SIGTERM)

    assert await ended(process) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="a process namespace of its own needs root")
async def test_as_first_process_of_a_container_it_ends_while_it_starts(
    silent_server: Path,
) -> None:
    # The first process hears only signals that it has asked for (pid_namespaces(7)).
    process = await asyncio.create_subprocess_exec(
        "unshare", "--pid", "--fork", "--kill-child=SIGKILL", "--", *command(silent_server),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    await until(lambda: bool(children_of(process.pid)), timeout_s=60)
    (first,) = children_of(process.pid)
    await until(lambda: catches_sigterm(first), timeout_s=60)

    os.kill(first, signal.SIGTERM)

    assert await ended(process) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--client-name", "kube-apiserver"], "--client-name needs --client-ca"),
        (["--client-ca", "absent.crt"], "cannot be read"),
        (["--client-ca", "tls.key"], "private key"),
        (["--client-ca", "tls.crt"], "no certificate authority"),
    ],
)
def test_a_check_of_callers_that_cannot_work_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    made = fresh_identity(["localhost"], datetime.now(UTC))
    write_files(tmp_path, {"tls.crt": made.leaf_pem, "tls.key": made.key_pem})
    monkeypatch.chdir(tmp_path)
    pair = ["--cert", "tls.crt", "--key", "tls.key"]

    done = CliRunner().invoke(cli, ["webhook", "--static", ".", *pair, *arguments])

    assert done.exit_code == 2
    assert says in " ".join(done.output.split())
