"""What any client meets first: discovery, forms, identities, and no way to crash it."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from embedded.apiserver import ApiServer, User, node, service_account
from embedded.errors import EmbeddedError
from tests.support.apiserver import PODS, Client, config_map, pod

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
async def test_health_is_ok(api: Client, path: str) -> None:
    assert (await api.get(path)).body == b"ok"


async def test_discovery_lists_groups_versions_and_resources(api: Client) -> None:
    assert (await api.get("/api")).body["versions"] == ["v1"]
    groups = {group["name"] for group in (await api.get("/apis")).body["groups"]}
    assert {"apps", "batch", "policy", "coordination.k8s.io", "apiextensions.k8s.io"} <= groups
    names = {row["name"] for row in (await api.get("/api/v1")).body["resources"]}
    assert {"pods", "pods/binding", "pods/eviction", "pods/status", "nodes/status"} <= names


async def test_aggregated_discovery_is_one_answer(api: Client) -> None:
    accept = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    reply = await api.call("GET", "/apis", headers=accept)
    assert "as=APIGroupDiscoveryList" in reply.headers["Content-Type"]
    apps = next(item for item in reply.body["items"] if item["metadata"].get("name") == "apps")
    rows = apps["versions"][0]["resources"]
    assert {"daemonsets", "deployments", "replicasets", "statefulsets"} == {
        r["resource"] for r in rows
    }


async def test_openapi_names_a_schema_for_each_kind(api: Client) -> None:
    root = (await api.get("/openapi/v3")).body["paths"]
    address = root["api/v1"]["serverRelativeURL"].partition("?")[0]
    document = (await api.get(address)).body
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert "spec" in document["components"]["schemas"]["io.k8s.api.V1Pod"]["properties"]


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/", 404),
        ("GET", "/nope", 404),
        ("GET", "/api/v2", 404),
        ("GET", "/apis/no", 404),
        ("GET", "/api/v1/nopes", 404),
        ("GET", "/api/v1/pods/x", 404),
        ("GET", "/apis/apps/v1/x/y/z/a/b/c", 404),
        ("GET", f"{PODS}/p/nope", 404),
        ("GET", f"{PODS}/a%2Fb", 404),
        ("GET", "/api/v1/namespaces/default//pods", 404),
        ("POST", f"{PODS}/p", 405),
        ("PUT", PODS, 405),
        ("PATCH", PODS, 405),
        ("POST", "/api/v1/pods", 405),
        ("POST", f"{PODS}/p/status", 405),
        ("GET", f"{PODS}/p/binding", 405),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("OPTIONS", PODS, 405),
    ],
)
async def test_a_wrong_path_or_verb_is_a_status(
    api: Client, method: str, path: str, code: int
) -> None:
    await api.made(PODS, pod())
    body: Any = {} if method in {"POST", "PUT", "PATCH"} else None
    reply = await api.call(method, path, body)
    assert reply.code == code
    assert (reply.body["kind"], reply.body["code"]) == ("Status", code)


BODIES: list[Any] = [
    b"",
    b"{",
    b"[]",
    b"5",
    b'"x"',
    b"null",
    b"\xff\xfe",
    b'{"metadata": 5}',
    b'{"metadata": {"name": 7}}',
    b'{"metadata": {"name": "x", "labels": []}}',
    b'{"kind": "Secret"}',
    b'{"apiVersion": "v2"}',
    b'{"spec": []}',
    b'{"metadata": {"name": "x"}, "spec": {"containers": {}}}',
    b'{"metadata": {"name": "x"}, "spec": {"containers": [null, 5]}}',
    b'{"metadata": {"name": "x"}, "spec": {"containers": [{"resources": {"limits": {"a": []}}}]}}',
    b'{"metadata": {"name": "x"}, "spec": {"priority": 99999999999999999999}}',
    b"[" * 100_000,
    b'{"a":' * 3000 + b"1" + b"}" * 3000,
]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize(
    "media", ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]
)
async def test_a_hostile_body_is_refused_with_a_status(
    api: Client, body: bytes, media: str
) -> None:
    reply = await api.call("POST", PODS, body, media=media)
    assert reply.code in {400, 422}, reply.body
    assert reply.body["kind"] == "Status"
    assert "Traceback" not in reply.body["message"]


async def test_a_body_beyond_three_mebibytes_is_413(api: Client) -> None:
    reply = await api.create(MAPS, config_map("m", big="x" * (3 * 1024 * 1024)))
    assert (reply.code, reply.body["reason"]) == (413, "RequestEntityTooLarge")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"limit": "x"}, 400),
        ({"limit": "-1"}, 200),
        ({"dryRun": "Some"}, 200),
        ({"resourceVersion": "abc"}, 400),
        ({"fieldSelector": "x"}, 400),
        ({"watch": "1", "timeoutSeconds": "z"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
    ],
)
async def test_a_malformed_query_of_a_read_is_refused_or_passed_over(
    api: Client, query: dict[str, str], code: int
) -> None:
    assert (await api.get(PODS, **query)).code == code


@pytest.mark.parametrize(
    "query", [{"dryRun": "Some"}, {"fieldValidation": "Maybe"}, {"fieldManager": "x" * 129}]
)
async def test_a_malformed_query_of_a_write_is_invalid(api: Client, query: dict[str, str]) -> None:
    assert (await api.create(MAPS, config_map("m"), **query)).code == 422


async def test_a_form_that_is_not_written_here_is_406(api: Client) -> None:
    reply = await api.call("GET", PODS, headers={"Accept": "application/vnd.kubernetes.protobuf"})
    assert (reply.code, reply.body["reason"]) == (406, "NotAcceptable")
    both = {"Accept": "application/vnd.kubernetes.protobuf,application/json"}
    assert (await api.call("GET", PODS, headers=both)).code == 200


async def test_yaml_goes_in_and_comes_out(api: Client) -> None:
    reply = await api.call(
        "POST",
        MAPS,
        b"metadata: {name: m}\ndata: {a: 'x'}",
        media="application/yaml",
        headers={"Accept": "application/yaml"},
    )
    assert (reply.code, b"name: m" in reply.body) == (201, True)


BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" % (n, n, *[n - 1] * 8) for n in range(98, 122)
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, "aliases are not accepted"),
        (b"metadata: {name: m}\ndata: !!set {a, b}", "has no place in JSON"),
        (b"metadata: {name: m}\nbinaryData: !!binary aGk=", "has no place in JSON"),
        (b"metadata: {name: m}\ndata: {a: .nan}", "has no place in JSON"),
        (b"metadata: {name: m}\n? [a]\n: b", "while constructing a mapping"),
        (b"metadata: {name: m}\ndata: {? null : b}", "cannot be a key"),
        (b"metadata: {name: m}\n---\nmetadata: {name: n}", "expected a single document"),
        (b"a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ],
)
async def test_yaml_that_is_more_than_json_is_refused(api: Client, text: bytes, told: str) -> None:
    async with asyncio.timeout(5):
        reply = await api.call("POST", MAPS, text, media="application/yaml")
    assert (reply.code, told in reply.body["message"]) == (400, True), reply.body


async def test_dates_and_numbers_in_yaml_stay_what_json_makes_of_them(api: Client) -> None:
    text = b"metadata: {name: m, annotations: {day: 2001-01-01}}\ndata: {2: a, true: b}"
    reply = await api.call("POST", MAPS, text, media="application/yaml")
    assert reply.body["metadata"]["annotations"] == {"day": "2001-01-01"}
    assert reply.body["data"] == {"2": "a", "true": "b"}


class TestIdentities:
    async def test_tokens_name_service_accounts_and_nodes(
        self, session: aiohttp.ClientSession, api: Client, server: ApiServer
    ) -> None:
        for user, name in (
            (service_account("gpu", "agent"), "system:serviceaccount:gpu:agent"),
            (node("n1"), "system:node:n1"),
        ):
            token = server.token_for(user)
            assert server.token_for(user) == token
            await Client(server.url, session, token).create(MAPS, config_map(f"m-{user.name[-2:]}"))
            assert [event.user for event in server.audit][-1] == name
        await api.create(MAPS, config_map("by-admin"))
        assert [event.user for event in server.audit][-1] == "kubernetes-admin"

    async def test_an_unknown_token_is_401(
        self, session: aiohttp.ClientSession, server: ApiServer
    ) -> None:
        reply = await Client(server.url, session, "who").get(PODS)
        assert (reply.code, reply.body["reason"]) == (401, "Unauthorized")

    async def test_a_client_certificate_names_user_and_groups(self, tmp_path: Path) -> None:
        async with ApiServer(tls=True) as server:
            user = User(name="system:node:n1", groups=("system:nodes",))
            pair = server.client_pair(user)
            (tmp_path / "c.pem").write_bytes(pair.certificate + pair.key)
            context = ssl.create_default_context(cadata=server.authority.decode())
            context.load_cert_chain(tmp_path / "c.pem")
            connector = aiohttp.TCPConnector(ssl=context)
            async with aiohttp.ClientSession(connector=connector) as session:
                await Client(server.url, session).made(MAPS, config_map())
            assert [event.user for event in server.audit] == ["system:node:n1"]

    async def test_a_strangers_certificate_does_not_connect(self, tmp_path: Path) -> None:
        async with ApiServer(tls=True) as server, ApiServer(tls=True) as other:
            pair = other.client_pair(node("n1"))
            (tmp_path / "c.pem").write_bytes(pair.certificate + pair.key)
            context = ssl.create_default_context(cadata=server.authority.decode())
            context.load_cert_chain(tmp_path / "c.pem")
            connector = aiohttp.TCPConnector(ssl=context)
            async with aiohttp.ClientSession(connector=connector) as session:
                with pytest.raises(aiohttp.ClientError):
                    await Client(server.url, session).get(PODS)


class TestStarting:
    async def test_a_taken_port_is_said_in_one_sentence(self, server: ApiServer) -> None:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(
            EmbeddedError, match=r"cannot listen here.*choose another port"
        ) as caught:
            await ApiServer(port=port).start()
        assert f"127.0.0.1:{port}" in str(caught.value)

    async def test_a_kubeconfig_is_for_its_owner_alone(
        self, server: ApiServer, tmp_path: Path
    ) -> None:
        path = server.write_kubeconfig(tmp_path / "deep" / "config")
        assert path.stat().st_mode & 0o077 == 0
        with pytest.raises(EmbeddedError, match="cannot be written"):
            server.write_kubeconfig(path / "below-a-file")

    async def test_certificates_need_tls(self, server: ApiServer) -> None:
        with pytest.raises(EmbeddedError, match="client certificates need TLS"):
            server.client_pair(node("n"))

    async def test_it_starts_with_the_usual_namespaces(self, api: Client) -> None:
        items = (await api.get("/api/v1/namespaces")).body["items"]
        assert [item["metadata"]["name"] for item in items] == [
            "default",
            "kube-node-lease",
            "kube-public",
            "kube-system",
        ]

    def test_a_missing_extra_is_said_in_one_sentence(self) -> None:
        code = (
            "import sys; sys.modules['cel_expr_python'] = None\n"
            "from sharing.errors import GpuSharingError\n"
            "try: import embedded.apiserver\n"
            "except GpuSharingError as error: print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert "install the extra that brings it" in done.stdout
