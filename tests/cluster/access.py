"""Ways into a test cluster's API server: a kubeconfig for anybody that a test wants to be.

Users and groups come as client certificates, service accounts with a token that the API server
issued, so that what RBAC allows is what the program under test would have.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from tests.cluster.keys import Authority, Pair
from tests.cluster.waiting import until

ADMIN: Final = "admin"
ADMIN_GROUPS: Final = ("system:masters",)
_CALL_TIMEOUT_S: Final = 30.0
_TOKEN_LIFE_S: Final = 3600


class RefusedError(AssertionError):
    """The API server answered a call of the harness with an error."""

    def __init__(self, method: str, path: str, code: int, body: str) -> None:
        self.code = code
        super().__init__(f"{method} {path}: {code}: {body}")


class Access:
    """One API server as seen from the tests.

    Args:
        folder: Takes the kubeconfig files.
        server: Address of the API server, such as ``https://127.0.0.1:40123``.
        authority: Signs client certificates; the API server trusts it and is signed by it.
    """

    def __init__(self, folder: Path, server: str, authority: Authority) -> None:
        self.folder = folder
        self.server = server
        self.authority = authority
        self._made: dict[tuple[str, tuple[str, ...]], Path] = {}
        self._numbers = itertools.count()
        self._namespaces = itertools.count(1)

    @property
    def ca(self) -> Path:
        """The authority's certificate, PEM."""
        return self.authority.pair.certificate

    def kubeconfig(self, user: str = ADMIN, groups: Sequence[str] | None = None) -> Path:
        """A kubeconfig with a client certificate; ``admin`` may do everything."""
        if groups is None:
            groups = ADMIN_GROUPS if user == ADMIN else ()
        key = (user, tuple(groups))
        if key not in self._made:
            file = f"{next(self._numbers)}-{_file_name(user)}"
            pair = self.authority.client(file, user, groups)
            self._made[key] = write_kubeconfig(
                self.folder / f"{file}.kubeconfig", self.server, self.ca, pair
            )
        return self._made[key]

    def service_account(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a fresh token of a service account, which is made if need be."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        try:
            self.call("POST", accounts, {"metadata": {"name": name}})
        except RefusedError as error:
            if error.code != http.client.CONFLICT:
                raise
        answer = self.call(
            "POST",
            f"{accounts}/{name}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": _TOKEN_LIFE_S},
            },
        )
        file = f"{next(self._numbers)}-{_file_name(f'{namespace}-{name}')}.kubeconfig"
        return write_kubeconfig(
            self.folder / file, self.server, self.ca, str(answer["status"]["token"])
        )

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One call as admin, for the harness; tests use the product's own client.

        Raises:
            RefusedError: The answer is not 2xx.
            OSError: There is no answer.
        """
        admin = Path(self.kubeconfig())  # makes the pair
        pair = _pair_of(admin)
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(pair.certificate, pair.key)
        where = urlsplit(self.server)
        connection = http.client.HTTPSConnection(
            str(where.hostname), where.port, timeout=_CALL_TIMEOUT_S, context=context
        )
        with contextlib.closing(connection):
            try:
                connection.request(
                    method,
                    path,
                    None if body is None else json.dumps(body),
                    {"Content-Type": "application/json"},
                )
                response = connection.getresponse()
                text = response.read().decode()
            except http.client.HTTPException as error:
                raise ConnectionError(f"{method} {path}: {error!r}") from error
        if response.status >= http.client.MULTIPLE_CHOICES:
            raise RefusedError(method, path, response.status, text)
        answer: dict[str, Any] = json.loads(text) if text.startswith("{") else {"text": text}
        return answer

    def is_ready(self) -> bool:
        """Whether the API server says that it is."""
        try:
            return bool(self.call("GET", "/readyz").get("text") == "ok")
        except RefusedError:
            return False

    @contextlib.contextmanager
    def namespace(
        self, *, labels: Mapping[str, str] | None = None, account: bool = False
    ) -> Iterator[str]:
        """A namespace for one test; its deletion is begun at the end and not waited for.

        Args:
            labels: Of the namespace.
            account: Wait for the service account ``default``, without which a server with the
                ServiceAccount plugin refuses pods; needs a controller manager.
        """
        name = f"test-{next(self._namespaces)}"
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        path = f"/api/v1/namespaces/{name}"
        if account:
            until(
                f"service account of {name}",
                lambda: self._exists(f"{path}/serviceaccounts/default"),
                timeout_s=30,
            )
        try:
            yield name
        finally:
            with contextlib.suppress(RefusedError, OSError):  # a test may have stopped the server
                self.call("DELETE", path)

    def _exists(self, path: str) -> bool:
        try:
            self.call("GET", path)
        except RefusedError as error:
            if error.code != http.client.NOT_FOUND:
                raise
            return False
        return True


def write_kubeconfig(path: Path, server: str, ca: Path, credentials: Pair | str) -> Path:
    """A kubeconfig file with a client pair or a token."""
    user = (
        {"token": credentials}
        if isinstance(credentials, str)
        else {
            "client-certificate": str(credentials.certificate),
            "client-key": str(credentials.key),
        }
    )
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [
            {"name": "test", "cluster": {"server": server, "certificate-authority": str(ca)}}
        ],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    path.write_text(json.dumps(content, indent=1))
    path.chmod(0o600)
    return path


def _pair_of(kubeconfig: Path) -> Pair:
    user = json.loads(kubeconfig.read_text())["users"][0]["user"]
    return Pair(certificate=Path(user["client-certificate"]), key=Path(user["client-key"]))


def _file_name(user: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", user)
