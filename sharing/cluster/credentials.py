"""Where the API server is and who we are.

A pod's service account and what stands in a kubeconfig are read here. Credential plugins are
run by the Kubernetes client library, which is imported for them alone: it costs 10 MiB and
0.2 s. Whatever it raises is turned into one error that names the file. Credentials that run
out (exec plugins, token files, service accounts) are loaded anew, not refreshed in place; see
``Access.fresh_until``.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import importlib
import ipaddress
import math
import os
import ssl
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from sharing.cluster import kubeconfig, pems
from sharing.errors import InputError, UnavailableError, shown

SERVICE_ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_FILE_LIFE_S: Final = 60.0
"""Files with tokens are read again this often, as client-go does."""
EXEC_TIMEOUT_S: Final = 60.0
_EXPIRY_MARGIN_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach one API server.

    Attributes:
        server: Its address, without a slash at the end.
        origin: Where this was read, for error messages.
        authorization: Value of the Authorization header; empty for none.
        ca_file: Authorities to trust, a PEM file; empty for the system's.
        cert_file: Client certificate, a PEM file; empty for none.
        key_file: Its key.
        verify: Whether the server's certificate is checked.
        server_name: Name to check it for, where it is not the address' own.
        proxy: Address of a proxy; empty for none.
        fresh_until: Unix time from which it should be loaded anew, seconds.
    """

    server: str
    origin: str
    authorization: str = field(default="", repr=False)
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    server_name: str = ""
    proxy: str = ""
    fresh_until: float = math.inf


Source = Callable[[], Awaitable[Access]]
"""Loads an Access; called again when it is no longer fresh or was refused."""


def at(url: str) -> Source:
    """An API server that asks for no credentials, such as ``kubectl proxy``."""

    async def load() -> Access:
        return Access(server=url.rstrip("/"), origin=url)

    return load


def find(
    path: Path | None = None, *, context: str = "", environ: Mapping[str, str] | None = None
) -> Source:
    """Credentials as every Kubernetes program looks for them.

    An explicit kubeconfig, else ``KUBECONFIG``, else ``~/.kube/config``, else the service
    account of the pod we run in.

    Raises:
        InputError: If there is none of these.
    """
    env = os.environ if environ is None else environ
    found = kubeconfig.files(path, env)
    if found:
        return from_kubeconfig(*found, context=context)
    if env.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ=env)
    raise InputError(
        "Kubernetes",
        "no cluster is configured here",
        expected="a kubeconfig file or a pod with a service account",
        fix="set KUBECONFIG, or run `gpu-sharing embedded` and use the file that it writes",
        example="export KUBECONFIG=$HOME/.kube/config",
    )


def from_kubeconfig(*paths: Path, context: str = "") -> Source:
    """Credentials of one context of kubeconfig files (first file wins).

    The source raises InputError where a file is malformed, UnavailableError where a
    credential plugin fails.
    """
    origin = "kubeconfig " + os.pathsep.join(str(path) for path in paths)

    async def load() -> Access:
        document = kubeconfig.read(paths, context=context)
        fresh_until = await _settle_user(document, origin)
        return await _load(document, origin, fresh_until)

    return load


def in_cluster(
    *, environ: Mapping[str, str] | None = None, folder: Path = SERVICE_ACCOUNT_FOLDER
) -> Source:
    """Credentials of the pod we run in."""
    env = os.environ if environ is None else environ

    async def load() -> Access:
        origin = f"service account in {folder}"
        host, port = (env.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
        token, authority = (_account_file(folder / name, origin) for name in ("token", "ca.crt"))
        if not host or not port:
            raise UnavailableError(
                origin, "KUBERNETES_SERVICE_HOST or _PORT is not set", fix="run in a pod"
            )
        server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        return Access(
            server=server,
            origin=origin,
            authorization=f"Bearer {token[1]}",
            ca_file=authority[0],
            proxy=_environment_proxy(server),
            fresh_until=time.time() + TOKEN_FILE_LIFE_S,
        )

    return load


def _account_file(path: Path, origin: str) -> tuple[str, str]:
    """Path and text of one of a service account's files."""
    text, wrong = "", "is empty"
    try:
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        wrong = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    if not text:
        raise UnavailableError(
            origin,
            f"its file {path.name} {wrong}",
            fix="give the pod a service account with automountServiceAccountToken: true",
        )
    return str(path), text


async def _settle_user(document: dict[str, Any], origin: str) -> float:
    """Run the user's exec plugin, if any, and put what it gave in its place.

    The library runs such plugins too, but only logs why one failed.

    Returns:
        The unix time until which the user's credentials hold.
    """
    entry, _ = kubeconfig.chosen(document)
    user = entry["user"]
    if "exec" not in user:
        return time.time() + TOKEN_FILE_LIFE_S if user.get("tokenFile") else math.inf
    status = await _run_exec(user["exec"], f"{origin}, user {entry['name']}")
    entry["user"] = {key: value for key, value in user.items() if key != "exec"}
    if status.get("token"):
        entry["user"]["token"] = str(status["token"])
    for ours, theirs in (
        ("client-certificate-data", "clientCertificateData"),
        ("client-key-data", "clientKeyData"),
    ):
        if status.get(theirs):
            entry["user"][ours] = base64.b64encode(str(status[theirs]).encode()).decode()
    return _expiry(status.get("expirationTimestamp"), origin)


async def _run_exec(plugin: dict[str, Any], subject: str) -> dict[str, Any]:
    node = _library("config.kube_config").ConfigNode("exec", plugin)
    command = plugin["command"]
    try:
        async with asyncio.timeout(EXEC_TIMEOUT_S):
            status = await _library("config.exec_provider").ExecProvider(node).run()
    except (_library("config").ConfigException, OSError, UnicodeDecodeError) as error:
        hint = plugin.get("installHint")
        raise UnavailableError(
            subject,
            f"credential plugin {shown(command)} failed: {error}",
            fix=hint if isinstance(hint, str) else "run it by hand to see why",
        ) from error
    except TimeoutError as error:
        raise UnavailableError(
            subject, f"credential plugin {shown(command)} did not end in {EXEC_TIMEOUT_S:.0f} s"
        ) from error
    if not isinstance(status, dict) or not (
        status.get("token") or (status.get("clientCertificateData") and status.get("clientKeyData"))
    ):
        raise UnavailableError(
            subject,
            f"credential plugin {shown(command)} gave neither a token nor a certificate with key",
        )
    return status


def _expiry(timestamp: object, origin: str) -> float:
    if not isinstance(timestamp, str):
        return math.inf
    try:
        expiry = datetime.fromisoformat(timestamp)
    except ValueError as error:
        raise UnavailableError(
            origin, f"credential plugin gave expirationTimestamp {shown(timestamp)}"
        ) from error
    # RFC 3339 always names a zone; a plugin that leaves it out means UTC.
    return (expiry if expiry.tzinfo else expiry.replace(tzinfo=UTC)).timestamp() - _EXPIRY_MARGIN_S


async def _load(document: dict[str, Any], origin: str, fresh_until: float) -> Access:
    user, cluster = kubeconfig.chosen(document)
    if "auth-provider" not in user["user"]:
        return _plain(user["user"], cluster["cluster"], origin, fresh_until)
    library = _library("config")
    configuration = _library("client").Configuration()
    try:
        await library.load_kube_config_from_dict(document, client_configuration=configuration)
    except (
        library.ConfigException,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        binascii.Error,
    ) as error:
        # What the library raises on odd input is not specified; the shape was checked
        # before, so this is about a rare kind of credential.
        raise InputError(origin, f"its credentials cannot be loaded: {error}") from error
    return _access(configuration, origin, fresh_until)


def _plain(
    user: Mapping[str, Any], cluster: Mapping[str, Any], origin: str, fresh_until: float
) -> Access:
    """What stands in a kubeconfig, in kubectl's order: a token, else name and password."""
    server = str(cluster["server"]).rstrip("/")
    tls = server.startswith("https")
    token, authorization = str(user.get("token") or ""), ""
    try:
        if not token and user.get("tokenFile"):
            token = Path(user["tokenFile"]).read_text("utf-8").strip()
        if token:
            authorization = f"Bearer {token}"
        elif "username" in user and "password" in user:
            pair = f"{user['username']}:{user['password']}".encode()
            authorization = f"Basic {base64.b64encode(pair).decode()}"
        return Access(
            server=server,
            origin=origin,
            authorization=authorization,
            ca_file=pems.file_of(cluster, "certificate-authority") if tls else "",
            cert_file=pems.file_of(user, "client-certificate") if tls else "",
            key_file=pems.file_of(user, "client-key") if tls else "",
            verify=not cluster.get("insecure-skip-tls-verify", False),
            server_name=str(cluster.get("tls-server-name") or ""),
            proxy=str(cluster.get("proxy-url") or "") or _environment_proxy(server),
            fresh_until=fresh_until,
        )
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(origin, f"its credentials cannot be loaded: {error}") from error


def _library(module: str) -> Any:
    """A module of the client library's asyncio half, imported on first use.

    By name, because most of it has no types and following it would make the type
    checker slow for nothing.
    """
    return importlib.import_module(f"kubernetes.aio.{module}")


def _access(configuration: Any, origin: str, fresh_until: float) -> Access:
    server = str(configuration.host).rstrip("/")
    return Access(
        server=server,
        origin=origin,
        authorization=str(configuration.api_key.get("BearerToken") or "").strip(),
        ca_file=configuration.ssl_ca_cert or "",
        cert_file=configuration.cert_file or "",
        key_file=configuration.key_file or "",
        verify=bool(configuration.verify_ssl),
        server_name=configuration.tls_server_name or "",
        proxy=configuration.proxy or _environment_proxy(server),
        fresh_until=fresh_until,
    )


def _environment_proxy(server: str) -> str:
    """The proxy that the environment names for a server, by the rules of Go's clients.

    A loopback address is never asked for through a proxy.
    """
    parts = urlsplit(server)
    host = parts.hostname or ""
    try:
        if host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return ""
    except ValueError:
        pass  # a name
    if urllib.request.proxy_bypass(host):
        return ""
    return urllib.request.getproxies().get(parts.scheme, "")


def tls_context(access: Access) -> ssl.SSLContext | None:
    """The TLS settings for this access; None for plain HTTP.

    Raises:
        InputError: If a certificate or key cannot be used.
    """
    if not access.server.startswith("https"):
        return None
    try:
        context = ssl.create_default_context(cafile=access.ca_file or None)
        # Cluster authorities are often made without the extensions that Python 3.13
        # asks for by default; no other Kubernetes client asks for them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if access.cert_file:
            context.load_cert_chain(access.cert_file, access.key_file or None)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise InputError(
            access.origin, f"a certificate or key in it cannot be used: {error}"
        ) from error
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
