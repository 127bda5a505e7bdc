"""Where ``gpu-sharing top`` reads: the agents of a cluster through its API server, or directly.

An API server passes a request on to a pod (``pods/proxy``), so nothing but the kubeconfig is
needed. What an agent cannot be asked is taken from the GPUNode, which knows holders and no use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from cli.toprows import Row, rows_of_metrics, rows_of_status
from sharing.api.model import parse_model
from sharing.api.node import GpuNodeStatus
from sharing.cluster.client import Client
from sharing.cluster.kind import GPU_NODES, PODS
from sharing.errors import GpuSharingError, UnavailableError

_AGENTS: Final = "app.kubernetes.io/name=gpu-sharing,app.kubernetes.io/component=agent"
_HEALTH: Final = "health"
"""The name of the port that metrics are on."""
_AT_ONCE: Final = 16
_TIMEOUT_S: Final = 5.0
_MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """All shares at one moment, and what could not be learned, a sentence each."""

    rows: tuple[Row, ...] = ()
    remarks: tuple[str, ...] = ()


class ProxyClient(Client):
    """A client that also reads what pods serve, through the API server."""

    async def text(self, path: str, subject: str) -> str:
        """The text at an address. Raises ApiError."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        response = await self._send("GET", path, subject, timeout=timeout)
        return await _text_of(response, subject)


async def look_at_cluster(client: ProxyClient, *, node: str | None, namespace: str) -> Sight:
    """The shares of a cluster's nodes, or of one.

    Args:
        client: The connection.
        node: Of this name only; None for all.
        namespace: Where the agents are.

    Raises:
        ApiError: The cluster does not tell of its GPUNodes or of the agents.
    """
    items = [await client.get(GPU_NODES, node)] if node else (await client.list(GPU_NODES))["items"]
    pods = (await client.list(PODS, namespace=namespace, label_selector=_AGENTS))["items"]
    running = {
        str(pod["spec"].get("nodeName")): pod
        for pod in pods
        if (pod.get("status") or {}).get("phase") == "Running"
    }
    limit = asyncio.Semaphore(_AT_ONCE)
    found = await asyncio.gather(*(_node(client, item, running, limit) for item in items))
    return _together(found)


async def _node(
    client: ProxyClient,
    item: Mapping[str, Any],
    running: Mapping[str, Mapping[str, Any]],
    limit: asyncio.Semaphore,
) -> Sight:
    name = str(item["metadata"]["name"])
    pod = running.get(name)
    if pod is None:
        return _from_status(name, item, "no agent runs there")
    try:
        async with limit:
            text = await client.text(_address(pod), f"metrics of the agent on {name}")
        rows = rows_of_metrics(name, text)
    except GpuSharingError as error:
        return _from_status(name, item, str(error))
    if not rows:
        return _from_status(name, item, "its agent has no metrics by share (agent.shareMetrics)")
    return Sight(rows=rows)


def _from_status(name: str, item: Mapping[str, Any], why: str) -> Sight:
    status = parse_model(GpuNodeStatus, item.get("status") or {}, f"GPUNode {name}, status")
    rows = rows_of_status(name, status)
    if not rows:
        return Sight()
    return Sight(rows=rows, remarks=(f"{name}: what is used is not known: {why}",))


def _address(pod: Mapping[str, Any]) -> str:
    metadata = pod["metadata"]
    ports = [
        int(port["containerPort"])
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("name") == _HEALTH
    ]
    if not ports:
        raise UnavailableError(
            f"pod {metadata['namespace']}/{metadata['name']}",
            f"has no port called {_HEALTH}",
            expected="an agent of the chart",
        )
    names = [quote(str(metadata[key]), safe="") for key in ("namespace", "name")]
    return f"/api/v1/namespaces/{names[0]}/pods/{names[1]}:{ports[0]}/proxy/metrics"


async def look_at_agents(urls: Sequence[str]) -> Sight:
    """The shares of agents that are asked directly.

    Raises:
        UnavailableError: One of them does not answer.
    """
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S), trust_env=False
    ) as session:
        return _together(await asyncio.gather(*(_agent(session, url) for url in urls)))


async def _agent(session: aiohttp.ClientSession, url: str) -> Sight:
    subject = f"agent at {url}"
    address = url if url.endswith("/metrics") else f"{url.rstrip('/')}/metrics"
    try:
        response = await session.get(address)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise UnavailableError(
            subject,
            f"does not answer: {str(error) or 'it took too long'}",
            fix="name the address of its metrics port",
            example="--agent http://127.0.0.1:8080",
        ) from error
    text = await _text_of(response, subject)
    host = str(response.url.host)
    rows = rows_of_metrics(host, text)
    if not rows:
        remark = f"{host}: no metrics by share: no share is offered, or --no-share-metrics is set"
        return Sight(remarks=(remark,))
    return Sight(rows=rows)


async def _text_of(response: aiohttp.ClientResponse, subject: str) -> str:
    try:
        async with response:
            content = await response.content.read(_MOST_BYTES)
            while len(content) < _MOST_BYTES and (more := await response.content.read(_MOST_BYTES)):
                content += more
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise UnavailableError(subject, f"the answer broke off: {error}") from error
    if not response.ok:
        raise UnavailableError(subject, f"answers {response.status} {response.reason}")
    return content[:_MOST_BYTES].decode(errors="replace")


def _together(sights: Sequence[Sight]) -> Sight:
    return Sight(
        rows=tuple(row for one in sights for row in one.rows),
        remarks=tuple(remark for one in sights for remark in one.remarks),
    )
