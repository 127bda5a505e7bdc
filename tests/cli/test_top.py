"""``gpu-sharing top``: what an agent's metrics say of each share, read directly and by proxy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from cli.exposition import exposed
from cli.toprows import Row, View, lines, rows_of_metrics, seen
from cli.topsource import ProxyClient, look_at_agents, look_at_cluster
from sharing.cluster.kind import GPU_NODES
from sharing.errors import UnavailableError
from sharing.node.metrics import HealthMetrics
from sharing.nvml.simulator import operate
from tests.support.agent_bench import DEADLINE_S, NodeBench, node_bench

SHARE = "gpu.sharing/timeslice-1of4"
AGENT_POD: dict[str, Any] = {
    "metadata": {"name": "gpu-sharing-agent-x", "namespace": "gpu-sharing"},
    "spec": {
        "nodeName": "n1",
        "containers": [{"name": "agent", "ports": [{"name": "health", "containerPort": 8080}]}],
    },
    "status": {"phase": "Running"},
}


@asynccontextmanager
async def at_work(node: NodeBench) -> AsyncIterator[str]:
    """A pod that uses 700 MiB of one share of four; the address of its agent's metrics."""
    await node.start_controller()
    await node.layout({"gpus": "all", "mode": "time-slicing", "sizes": {"1of4": 4}})
    agent = await node.start_agent()
    await node.until_allocatable({SHARE: 4})
    pod = await node.run_pod("train", SHARE)
    cgroup = f"/kubepods/pod{pod['metadata']['uid']}/{'c' * 64}"
    start = partial(operate.start_process, which="0", memory_mib=700, cgroup=cgroup)
    node.store().change(start)
    registry = CollectorRegistry()
    registry.register(HealthMetrics(lambda: agent.report, agent.infirmary))
    registry.register(agent.metrics)
    async with exposed(registry, agent.ready, 0) as port:
        url = f"http://127.0.0.1:{port}"
        async with asyncio.timeout(DEADLINE_S):
            while not any(  # noqa: ASYNC110 - nothing tells of it
                row.memory_used_mib for row in (await look_at_agents([url])).rows
            ):
                await asyncio.sleep(0.05)
        yield url


@asynccontextmanager
async def api_server(node: NodeBench, url: str, pods: list[dict[str, Any]]) -> AsyncIterator[Path]:
    """An API server that passes requests on to pods; its kubeconfig."""

    async def proxied(_: web.Request) -> web.Response:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
            return web.Response(body=await answer.read())

    async def gpu_nodes(_: web.Request) -> web.Response:
        return web.json_response(await node.client.list(GPU_NODES))

    async def agents(request: web.Request) -> web.Response:
        assert "component=agent" in request.query["labelSelector"]
        return web.json_response({"items": pods})

    app = web.Application()
    home = "/api/v1/namespaces/gpu-sharing/pods"
    app.router.add_get("/apis/gpu.sharing/v1alpha1/gpunodes", gpu_nodes)
    app.router.add_get(home, agents)
    app.router.add_get(f"{home}/gpu-sharing-agent-x:8080/proxy/metrics", proxied)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    kubeconfig = node.folder / "proxy.kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "clusters": [
                    {
                        "name": "c",
                        "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"},
                    }
                ],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
        )
    )
    try:
        yield kubeconfig
    finally:
        await runner.cleanup()


async def test_a_cluster_is_read_through_its_api_server() -> None:
    async with node_bench("1xH100-80GB") as node, at_work(node) as url:
        async with (
            api_server(node, url, [AGENT_POD]) as kubeconfig,
            ProxyClient.from_kubeconfig(kubeconfig) as client,
        ):
            sight = await look_at_cluster(client, node=None, namespace="gpu-sharing")
        (held,) = [row for row in sight.rows if row.held]
        assert (held.node, held.gpu, held.resource) == ("n1", "0", SHARE)
        assert (held.namespace, held.pod, held.container) == ("default", "train", "main")
        assert (held.memory_used_mib, held.memory_limit_mib) == (700, 81559 // 4)
        assert (held.processes, held.mps_clients) == (1, None)
        assert len(sight.rows) == 4
        assert sight.remarks == ()

        async with (
            api_server(node, url, []) as kubeconfig,
            ProxyClient.from_kubeconfig(kubeconfig) as client,
        ):
            sight = await look_at_cluster(client, node=None, namespace="gpu-sharing")
        (held,) = [row for row in sight.rows if row.held]
        assert (held.pod, held.memory_used_mib) == ("train", None)
        assert sight.remarks == ("n1: what is used is not known: no agent runs there",)
        table = list(lines(sight.rows, View()))
        assert "? / 20389" in table[1]


async def test_a_terminal_shows_what_changes_until_it_is_interrupted() -> None:
    async with node_bench("1xH100-80GB") as node, at_work(node) as url:
        ours, theirs = pty.openpty()
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cli.main", "top", "--agent", url, "--interval", "0.2",
            stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | {"COLUMNS": "120"},
        )  # fmt: skip
        os.close(theirs)
        os.set_blocking(ours, False)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await _until_written(ours, b"700 / 20389")
                pid = node.machine().gpus[0].processes[0].pid
                cgroup = node.machine().gpus[0].processes[0].cgroup
                node.store().change(lambda machine: operate.stop_process(machine, pid))
                start = partial(operate.start_process, which="0", memory_mib=900, cgroup=cgroup)
                node.store().change(start)
                await _until_written(ours, b"900 / 20389")
                program.send_signal(signal.SIGINT)
                assert await program.wait() == 0
        finally:
            os.close(ours)
            with contextlib.suppress(ProcessLookupError):
                program.kill()


async def test_programs_get_the_same_as_one_document() -> None:
    async with node_bench("1xH100-80GB") as node, at_work(node) as url:
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cli.main", "top", "--agent", url, "--json", "--all",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        printed, _ = await program.communicate()

    found = json.loads(printed)
    assert program.returncode == 0
    assert found["remarks"] == []
    assert [one["pod"] for one in found["shares"]].count("train") == 1
    assert len(found["shares"]) == 4
    assert {one["memory_used_mib"] for one in found["shares"]} == {700, None}


def test_the_page_shows_what_is_printed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations" / "metrics.md").read_text("utf-8")
    shown = page.partition("$ gpu-sharing top --once\n")[2].partition("```")[0]
    rows = [
        row(namespace="team-a", pod="chat-7d9f", memory_used_mib=18213, busy_percent=41,
            processes=2, mps_clients=2),
        row(share="b", namespace="team-a", pod="embed-5c2k", memory_used_mib=6120, busy_percent=9,
            processes=1, mps_clients=1),
        row(share="c", gpu="1", resource=SHARE, namespace="lab", pod="notebook-0",
            memory_used_mib=31744, busy_percent=77, processes=1, over_budget=True),
        row(share="d", gpu="2", resource="nvidia.com/mig-1g.10gb", namespace="lab", pod="ci-42",
            memory_limit_mib=9856, memory_used_mib=512, processes=1),
        row(share="e", gpu="2", resource="nvidia.com/mig-1g.10gb", namespace="", pod=""),
    ]  # fmt: skip

    assert shown.splitlines() == list(lines(rows, View()))


async def _until_written(terminal: int, text: bytes) -> None:
    """Wait until a program has written something to its terminal."""
    seen_so_far = b""
    while text not in seen_so_far:
        try:
            seen_so_far += os.read(terminal, 1 << 16)
        except BlockingIOError:
            await asyncio.sleep(0.02)


def row(**changes: Any) -> Row:
    plain: dict[str, Any] = {
        "node": "n1", "gpu": "0", "share": "GPU-a::1of4-0", "resource": "gpu.sharing/mps-1of4",
        "namespace": "a", "pod": "p", "container": "main", "memory_limit_mib": 20389,
    }  # fmt: skip
    return Row(**(plain | changes))


def test_what_cannot_be_told_is_said_to_be_unknown() -> None:
    _, line, total = lines([row()], View())

    assert line.split() == ["n1", "0", "gpu.sharing/mps-1of4", "a/p", "?", "/", "20389", "?", "?"]
    assert total == "1 of 1 shares on 1 nodes are held"


def test_clients_and_use_above_the_share_are_marked() -> None:
    used = row(memory_used_mib=30000, busy_percent=7, processes=3, mps_clients=2, over_budget=True)
    _, line, total = lines([used], View())

    assert line.endswith("30000 / 20389 !  7%    3 (2 MPS)")
    assert total.endswith(", 1 above their memory")


def test_shares_come_by_place_or_by_their_use() -> None:
    rows = [
        row(gpu="10", share="a", memory_used_mib=1, busy_percent=50),
        row(gpu="2", share="b", memory_used_mib=9),
        row(gpu="2", share="c", pod="", namespace=""),
    ]

    assert [one.share for one in seen(rows, View())] == ["b", "a"]
    assert [one.share for one in seen(rows, View(order="busy"))] == ["a", "b"]
    assert [one.share for one in seen(rows, View(order="memory"))] == ["b", "a"]
    assert [one.share for one in seen(rows, View(free=True))] == ["b", "c", "a"]
    assert seen(rows, View(namespace="b")) == []


@pytest.mark.parametrize("text", ["<html>", 'gpu_sharing_share_info{share="a"} 1\n', "\0", "a{"])
def test_what_is_no_agents_metrics_is_refused(text: str) -> None:
    with pytest.raises(UnavailableError, match="metrics of the agent on n1: cannot be read"):
        rows_of_metrics("n1", text)


@given(st.text(max_size=60))
def test_no_answer_of_a_stranger_breaks_the_reading(text: str) -> None:
    with contextlib.suppress(UnavailableError):
        assert rows_of_metrics("n1", text) == ()


async def test_an_agent_that_is_not_there_is_named() -> None:
    with pytest.raises(UnavailableError, match=r"agent at http://127\.0\.0\.1:1: does not answer"):
        await look_at_agents(["http://127.0.0.1:1"])
