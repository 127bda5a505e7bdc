"""``gpu-sharing certs`` as a person runs it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from certs.context import HotContext
from certs.start import fresh_identity
from cli.main import cli
from sharing.cluster.client import PatchType
from sharing.cluster.kind import MUTATING_WEBHOOKS
from tests.certs.bench import NAME, Bench
from tests.certs.test_context import fresh, now, serving


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["certs", *arguments])


async def run_beside(bench: Bench, *arguments: str) -> Result:
    """Run it in a thread of its own, with the bench's cluster."""
    given = (arguments[0], "--kubeconfig", str(bench.kubeconfig), *arguments[1:])
    return await asyncio.to_thread(run, *given)


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    result = run("issue", "--name", NAME, "--name", "127.0.0.1", "--out", str(tmp_path / "pki"))
    assert result.exit_code == 0, result.output
    return tmp_path / "pki"


def files(pki: Path) -> tuple[str, ...]:
    return (
        "--cert", str(pki / "tls.crt"), "--key", str(pki / "tls.key"), "--ca", str(pki / "ca.crt"),
    )  # fmt: skip


def test_what_was_issued_verifies(pki: Path) -> None:
    result = run("verify", *files(pki), "--name", NAME, "--name", "127.0.0.1")

    assert result.exit_code == 0, result.output
    assert result.output == "verified: every caller accepts what is served\n"


def test_verify_answers_no_with_status_3_and_a_reason(pki: Path) -> None:
    result = run("verify", *files(pki), "--name", "other.ns.svc", "--json")

    assert result.exit_code == 3
    answer = json.loads(result.output)
    assert answer["verified"] is False
    assert "does not carry the name 'other.ns.svc'" in answer["faults"][0]


def test_verify_answers_no_where_the_authority_is_another(pki: Path, tmp_path: Path) -> None:
    (pki / "ca.crt").write_bytes(fresh_identity([NAME], now()).ca_pem)

    result = run("verify", *files(pki))

    assert result.exit_code == 3
    assert "is not vouched for by any of the 1 trusted authorities" in result.output


@pytest.mark.parametrize(
    ("which", "content", "says"),
    [
        ("tls.crt", b"garbage", "is not PEM"),
        ("tls.key", b"", "is empty"),
        ("ca.crt", b"garbage", "is not PEM"),
        ("tls.crt", None, "cannot be read"),
    ],
)
def test_files_that_cannot_be_used_are_told_with_status_2(
    pki: Path, which: str, content: bytes | None, says: str
) -> None:
    if content is None:
        (pki / which).unlink()
    else:
        (pki / which).write_bytes(content)

    result = run("status", *files(pki))

    assert result.exit_code == 2
    assert str(pki / which) in result.output
    assert says in result.output
    assert "Traceback" not in result.output


def test_half_of_a_pair_is_a_usage_error(pki: Path) -> None:
    result = run("status", "--cert", str(pki / "tls.crt"))

    assert result.exit_code == 2
    assert "files need both --cert and --key" in result.output


def test_issue_replaces_nothing_unasked(pki: Path) -> None:
    before = (pki / "tls.crt").read_bytes()

    refused = run("issue", "--name", NAME, "--out", str(pki))
    forced = run("issue", "--name", NAME, "--out", str(pki), "--force", "--json")

    assert refused.exit_code == 2
    assert "already; choose another folder" in refused.output
    assert forced.exit_code == 0
    assert json.loads(forced.output)["files"]["ca.crt"] == str(pki / "ca.crt")
    assert (pki / "tls.crt").read_bytes() != before


def test_issue_refuses_what_is_no_name(tmp_path: Path) -> None:
    result = run("issue", "--name", "not a name", "--out", str(tmp_path / "pki"))

    assert result.exit_code == 2
    assert "is neither a host name nor an IP address" in result.output
    assert not (tmp_path / "pki").exists()


def test_status_of_files_fits_a_terminal_and_says_until_when(pki: Path) -> None:
    result = run("status", *files(pki))

    assert result.exit_code == 0
    assert "days left" in result.output
    assert f"for {NAME}" in result.output
    assert all(len(line) <= 100 for line in result.output.splitlines())


@pytest.mark.parametrize("address", ["nowhere", "host:", ":1", "host:99999", "host:x"])
def test_connect_wants_an_address(pki: Path, address: str) -> None:
    result = run("verify", *files(pki), "--connect", address)

    assert result.exit_code == 2
    assert "--connect wants HOST:PORT" in result.output


async def test_verify_makes_a_handshake_with_a_running_server(pki: Path, tmp_path: Path) -> None:
    bundle, leaf = fresh()
    hot = HotContext(now)
    hot.swap(leaf)
    (tmp_path / "served.crt").write_bytes(leaf.certificate_pem)
    (tmp_path / "served.key").write_bytes(leaf.key_pem)
    (tmp_path / "served.ca").write_bytes(bundle.to_pem())
    served = (
        "--cert", str(tmp_path / "served.crt"), "--key", str(tmp_path / "served.key"),
        "--ca", str(tmp_path / "served.ca"), "--name", "localhost",
    )  # fmt: skip
    async with serving(hot) as echo:
        address = f"127.0.0.1:{echo.port}"
        yes = await asyncio.to_thread(run, "verify", *served, "--connect", address)
        no = await asyncio.to_thread(run, "verify", *files(pki), "--connect", address)

    assert yes.exit_code == 0, yes.output
    assert no.exit_code == 3
    assert "its certificate does not verify" in no.output


async def test_status_and_verify_read_the_cluster(bench: Bench) -> None:
    nothing = await run_beside(bench, "verify")
    replica = await bench.start()
    await bench.until(lambda: not replica.keeper.unready_reason(), "ready")
    await bench.kill(replica)
    status = await run_beside(bench, "status", "--json")
    verified = await run_beside(bench, "verify")
    await bench.client.patch(
        MUTATING_WEBHOOKS,
        "gpu-sharing",
        [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}],
        patch_type=PatchType.JSON,
    )
    distrusted = await run_beside(bench, "verify")

    assert nothing.exit_code == 3
    assert "there is no certificate to serve" in nothing.output
    facts = json.loads(status.output)
    assert [one["role"] for one in facts["authorities"]] == ["current"]
    assert {one["host"] for one in facts["trusting"]} == {NAME}
    assert facts["faults"] == []
    assert verified.exit_code == 0, verified.output
    assert distrusted.exit_code == 3
    assert "MutatingWebhookConfiguration/gpu-sharing w0.gpu.sharing" in distrusted.output


async def test_rotate_waits_until_the_new_certificate_is_served(bench: Bench) -> None:
    replica = await bench.start()
    await bench.until(lambda: not replica.keeper.unready_reason(), "ready")
    before = replica.context.leaf

    result = await run_beside(bench, "rotate", "--wait", "30")

    assert result.exit_code == 0, result.output
    # The replica runs in this process and logs to the same stream.
    assert result.output.endswith("rotated: the new certificate is served\n")
    assert (await bench.stored()).current != before


async def test_rotate_gives_up_with_status_1_where_no_webhook_runs(bench: Bench) -> None:
    result = await run_beside(bench, "rotate", "--wait", "0.2")

    assert result.exit_code == 1
    assert "check that a webhook runs" in result.output
