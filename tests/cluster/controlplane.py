"""Tier a: a real etcd and kube-apiserver, about four seconds to start.

Both die with the process that started them, also when that is killed: the kernel sends them the
parent-death signal. Data and logs live in one folder that the caller owns.
"""

from __future__ import annotations

import ctypes
import json
import secrets
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.cluster import programs

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
START_TIMEOUT_S: Final = 60.0


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nothing listens on right now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


class ControlPlane:
    """A running etcd and kube-apiserver.

    Args:
        folder: For data, keys and logs; must exist and be empty.
        identities: Bearer tokens' owners as (user, groups); ``token`` finds each one's.
    """

    def __init__(
        self, folder: Path, *, identities: Sequence[tuple[str, tuple[str, ...]]] = ()
    ) -> None:
        self._folder = folder
        self._etcd_client, self._etcd_peer, self.port = free_ports(3)
        self._tokens = {
            user: (secrets.token_hex(16), groups)
            for user, groups in (("admin", ("system:masters",)), *identities)
        }
        self._running: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self.port}"

    def token(self, user: str = "admin") -> str:
        """A user's bearer token."""
        return self._tokens[user][0]

    def kubeconfig(self, user: str = "admin") -> Path:
        """A kubeconfig file of a user."""
        path = self._folder / f"{user.replace(':', '-')}.kubeconfig"
        authority = (self._folder / "keys" / "apiserver.crt").read_text()
        (self._folder / "ca.crt").write_text(authority)
        cluster = {"server": self.url, "certificate-authority": str(self._folder / "ca.crt")}
        content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": user}}],
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
        }
        path.write_text(json.dumps(content))
        return path

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self) -> None:
        client = f"http://127.0.0.1:{self._etcd_client}"
        peer = f"http://127.0.0.1:{self._etcd_peer}"
        self._spawn(
            "etcd", f"--data-dir={self._folder / 'etcd'}", "--unsafe-no-fsync",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )  # fmt: skip
        self._wait(f"{client}/health", lambda text: '"true"' in text)
        self._spawn("kube-apiserver", *self._apiserver_flags(client))
        self._wait(f"{self.url}/readyz", lambda text: text == "ok")

    def _apiserver_flags(self, etcd: str) -> list[str]:
        keys = self._folder / "keys"
        keys.mkdir(exist_ok=True)
        private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (keys / "sa.key").write_bytes(
            private.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        lines = [
            f'{token},{user},{user},"{",".join(groups)}"'
            for user, (token, groups) in self._tokens.items()
        ]
        (keys / "tokens.csv").write_text("\n".join(lines) + "\n")
        return [
            f"--etcd-servers={etcd}", f"--cert-dir={keys}", "--bind-address=127.0.0.1",
            f"--secure-port={self.port}", "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=RBAC",
            f"--service-account-issuer={self.url}", f"--service-account-key-file={keys / 'sa.key'}",
            f"--service-account-signing-key-file={keys / 'sa.key'}",
            f"--token-auth-file={keys / 'tokens.csv'}",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        ]  # fmt: skip

    def _spawn(self, name: str, *flags: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._running.append(
                subprocess.Popen(
                    [programs.find(name), *flags],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    preexec_fn=_die_with_parent,  # noqa: PLW1509 - no threads hold locks here
                )  # fmt: skip
            )

    def _wait(self, url: str, good: Any) -> None:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        request = urllib.request.Request(  # noqa: S310 - our own loopback address
            url, headers={"Authorization": f"Bearer {self.token()}"}
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        last = "no answer"
        while time.monotonic() < deadline:
            if self._running[-1].poll() is not None:
                raise RuntimeError(f"a program ended at its start:\n{self.log_tail()}")
            try:
                with urllib.request.urlopen(  # noqa: S310 - as above
                    request, timeout=2, context=context if url.startswith("https") else None
                ) as response:
                    last = response.read().decode()
                    if good(last):
                        return
            except (urllib.error.URLError, OSError) as error:
                last = str(error)
            time.sleep(0.05)
        raise RuntimeError(
            f"{url} was not well after {START_TIMEOUT_S} s: {last}\n{self.log_tail()}"
        )

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of each program's log, for a failing test."""
        return "\n".join(
            f"--- {log.name}\n" + "\n".join(log.read_text("utf-8", "replace").splitlines()[-lines:])
            for log in sorted(self._folder.glob("*.log"))
        )

    def stop(self) -> None:
        """End both programs, the API server first."""
        for process in reversed(self._running):
            process.terminate()
        for process in reversed(self._running):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        self._running.clear()
