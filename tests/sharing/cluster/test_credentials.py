"""Credentials from every source, and one clear sentence for every mistake in a kubeconfig."""

from __future__ import annotations

import asyncio
import base64
import ssl
import stat
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web

from sharing.cluster import credentials, pems
from sharing.cluster.client import Client
from sharing.cluster.errors import UnreachableError
from sharing.cluster.kind import NODES
from sharing.errors import InputError, UnavailableError


def config(
    user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:9", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }


def write(folder: Path, document: object, name: str = "config") -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "is not YAML: line"),
        ("", "expected a mapping"),
        ("- 1", "expected a mapping"),
        ("\x00", "is not YAML"),
        ({"clusters": []}, "current-context is not set"),
        (config() | {"current-context": "d"}, "there is no context 'd'"),
        (config() | {"current-context": ["c"]}, "current-context is"),
        (config() | {"clusters": {"k": 1}}, "expected a list"),
        (config() | {"clusters": [{"cluster": {}}]}, r"clusters\[0\] has no name"),
        (config() | {"clusters": [{"name": "k", "cluster": "x"}]}, r"clusters\[0\].cluster is 'x'"),
        (config() | {"clusters": []}, "which is not in clusters"),
        (config() | {"users": []}, "which is not in users"),
        (config(cluster={"server": "10.0.0.1:6443"}), "expected an https address"),
        (config(cluster={"server": 6443}), "is not text"),
        (config(cluster={"certificate-authority": "missing.crt"}), "there is no file"),
        (config(cluster={"certificate-authority-data": "a"}), "is not base64"),
        (config(user={"token": 12345}), "is not text; put it into quotes"),
        (config(user={"client-certificate": "gone.pem"}), "there is no file"),
        (config(user={"exec": "aws"}), "cannot be run"),
        (config(user={"exec": {"command": "x", "apiVersion": "v1", "args": [1]}}), "cannot be run"),
    ],
)
async def test_a_malformed_kubeconfig_gives_one_sentence_with_its_name(
    tmp_path: Path, document: object, message: str
) -> None:
    path = write(tmp_path, document)
    with pytest.raises(InputError, match=message) as caught:
        await credentials.from_kubeconfig(path)()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "12345" not in str(caught.value)


@pytest.mark.parametrize("pem", ["garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
async def test_an_unusable_certificate_is_told_with_the_kubeconfigs_name(
    tmp_path: Path, pem: str
) -> None:
    data = base64.b64encode(pem.encode()).decode()
    document = config(cluster={"server": "https://127.0.0.1:9", "certificate-authority-data": data})
    path = write(tmp_path, document)
    async with Client.from_kubeconfig(path) as client:
        with pytest.raises(InputError, match="cannot be used") as caught:
            await client.get(NODES, "n")
    assert str(path) in str(caught.value)


def test_no_configuration_at_all_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="set KUBECONFIG"):
        credentials.find(environ={"HOME": str(tmp_path)})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        credentials.find(tmp_path / "nothing")
    with pytest.raises(InputError, match="none of these files exists"):
        credentials.find(environ={"KUBECONFIG": f"{tmp_path}/a:{tmp_path}/b"})


async def test_several_files_merge_and_the_first_wins(tmp_path: Path) -> None:
    first = {"clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}]}
    one, two = write(tmp_path, first, "one"), write(tmp_path, config({"token": "t"}), "two")
    source = credentials.find(environ={"KUBECONFIG": f"{one}:{tmp_path}/missing:{two}"})
    access = await source()
    assert access.server == "http://127.0.0.1:1"
    assert access.authorization == "Bearer t"


async def test_an_explicit_context_wins(tmp_path: Path) -> None:
    document = config({"token": "t"})
    document["clusters"].append({"name": "l", "cluster": {"server": "http://127.0.0.2:1"}})
    document["contexts"].append({"name": "d", "context": {"cluster": "l"}})
    access = await credentials.find(write(tmp_path, document), context="d")()
    assert access.server == "http://127.0.0.2:1"
    assert access.authorization == ""


async def test_a_token_file_is_relative_to_the_kubeconfig_and_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")
    source = credentials.from_kubeconfig(write(tmp_path, config({"tokenFile": "token"})))
    first = await source()
    (tmp_path / "token").write_text("two")
    second = await source()
    assert (first.authorization, second.authorization) == ("Bearer one", "Bearer two")
    assert first.fresh_until <= time.time() + credentials.TOKEN_FILE_LIFE_S


def script(folder: Path, body: str) -> dict[str, Any]:
    path = folder / "plugin"
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path)}}


def credential(status: str) -> str:
    api = "client.authentication.k8s.io/v1"
    return (
        "import json; print(json.dumps({'apiVersion': '" + api + "', 'kind': 'ExecCredential', "
        f"'status': {status}}}))"
    )


async def test_an_exec_plugin_gives_a_token_with_its_expiry(tmp_path: Path) -> None:
    user = script(
        tmp_path, credential("{'token': 't', 'expirationTimestamp': '2030-01-01T00:00:00Z'}")
    )
    access = await credentials.from_kubeconfig(write(tmp_path, config(user)))()
    assert access.authorization == "Bearer t"
    assert access.fresh_until == 1893456000 - 60


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import sys; sys.exit('who are you')", "failed: exec: process returned 1.*who are you"),
        ("print('no json')", "failed to decode"),
        (credential("{}"), "gave neither a token nor a certificate"),
        (credential("{'token': 't', 'expirationTimestamp': 'soon'}"), "expirationTimestamp 'soon'"),
    ],
)
async def test_a_failing_exec_plugin_is_told_with_its_own_words(
    tmp_path: Path, body: str, message: str
) -> None:
    path = write(tmp_path, config(script(tmp_path, body)))
    with pytest.raises(UnavailableError, match=message):
        await credentials.from_kubeconfig(path)()


async def test_an_exec_plugin_that_is_missing_is_told(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "v1", "command": "/nonexistent/plugin", "installHint": "get it"}}
    with pytest.raises(UnavailableError, match=r"/nonexistent/plugin.* failed.*get it"):
        await credentials.from_kubeconfig(write(tmp_path, config(user)))()


async def test_a_pods_service_account_is_read_from_its_files(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    source = credentials.in_cluster(environ=environ, folder=tmp_path)
    with pytest.raises(UnavailableError, match="automountServiceAccountToken"):
        await source()
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("c")
    access = await source()
    assert access.server == "https://[fd00::1]:443"
    assert access.authorization == "Bearer t"
    assert access.ca_file == str(tmp_path / "ca.crt")
    assert time.time() < access.fresh_until <= time.time() + 60
    credentials.find(environ={"HOME": str(tmp_path), **environ})


@pytest.mark.parametrize(
    ("user", "authorization"),
    [
        ({"username": "me", "password": "word"}, "Basic bWU6d29yZA=="),
        ({"username": "me"}, ""),
        ({"token": "t", "tokenFile": "token", "username": "me", "password": "word"}, "Bearer t"),
        ({"token": "", "tokenFile": "token"}, "Bearer of the file"),
    ],
    ids=["name and password", "a name alone", "a token first", "an empty token is none"],
)
async def test_a_kubeconfigs_user_is_read_in_kubectls_order(
    tmp_path: Path, user: dict[str, Any], authorization: str
) -> None:
    (tmp_path / "token").write_text("of the file\n")
    access = await credentials.from_kubeconfig(write(tmp_path, config(user)))()
    assert access.authorization == authorization


@pytest.mark.parametrize("content", [None, "", "\N{SNOWMAN}"], ids=["missing", "empty", "no text"])
async def test_a_service_account_without_a_usable_token_is_told_by_file(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content, "utf-8")
    environ = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}
    with pytest.raises(UnavailableError, match=r"its file token .*automountServiceAccountToken"):
        await credentials.in_cluster(environ=environ, folder=tmp_path)()


async def test_a_service_account_without_an_api_server_is_told(tmp_path: Path) -> None:
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("x")
    with pytest.raises(UnavailableError, match="KUBERNETES_SERVICE_HOST"):
        await credentials.in_cluster(environ={}, folder=tmp_path)()


def test_data_in_a_kubeconfig_become_one_file_that_only_we_can_read() -> None:
    data = base64.b64encode(b"an authority").decode()
    section = {"certificate-authority-data": data, "certificate-authority": "/else"}
    first = Path(pems.file_of(section, "certificate-authority"))
    assert Path(pems.file_of(section, "certificate-authority")) == first
    assert first.read_bytes() == b"an authority"
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    first.unlink()
    assert Path(pems.file_of(section, "certificate-authority")).read_bytes() == b"an authority"
    assert pems.file_of({"client-key-data": "", "client-key": "/k"}, "client-key") == "/k"
    assert pems.file_of({}, "client-key") == ""


async def test_the_client_library_is_loaded_for_credential_plugins_alone(tmp_path: Path) -> None:
    path = write(tmp_path, config({"token": "t"}))
    code = (
        "import asyncio, pathlib, sys\n"
        "from sharing.cluster import credentials\n"
        f"asyncio.run(credentials.from_kubeconfig(pathlib.Path({str(path)!r}))())\n"
        "sys.exit('kubernetes' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == 0


@asynccontextmanager
async def https_server(ca: trustme.CA) -> AsyncIterator[str]:
    async def who(request: web.Request) -> web.Response:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert")
        return web.json_response({"peer": peer["subject"][-1][0][1]})

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)
    app = web.Application()
    app.router.add_get("/{tail:.*}", who)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_client_certificates_and_authority_inside_the_file_work(tmp_path: Path) -> None:
    ca = trustme.CA()
    pair = ca.issue_cert("admin@example.org", common_name="admin")

    def data(*pems: trustme.Blob) -> str:
        return base64.b64encode(b"".join(pem.bytes() for pem in pems)).decode()

    async with https_server(ca) as url:
        user = {
            "client-certificate-data": data(*pair.cert_chain_pems),
            "client-key-data": data(pair.private_key_pem),
        }
        cluster = {"server": url, "certificate-authority-data": data(ca.cert_pem)}
        good = write(tmp_path, config(user, cluster), "good")
        async with Client.from_kubeconfig(good) as client:
            assert await client.get(NODES, "n") == {"peer": "admin"}
        cluster["certificate-authority-data"] = data(trustme.CA().cert_pem)
        bad = write(tmp_path, config(user, cluster), "bad")
        async with Client.from_kubeconfig(bad) as client:
            with pytest.raises(UnreachableError, match="is not trusted"):
                await client.get(NODES, "n")
        lax = write(
            tmp_path, config(user, {"server": url, "insecure-skip-tls-verify": True}), "lax"
        )
        async with Client.from_kubeconfig(lax) as client:
            assert await client.get(NODES, "n") == {"peer": "admin"}


async def test_a_loopback_server_is_never_asked_for_through_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://proxy.invalid:3128")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
    near = await credentials.from_kubeconfig(write(tmp_path, config()))()
    far = await credentials.from_kubeconfig(
        write(tmp_path, config(cluster={"server": "http://10.1.1.1:80"}))
    )()
    assert (near.proxy, far.proxy) == ("", "http://proxy.invalid:3128")
