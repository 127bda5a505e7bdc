"""Certificates that somebody else keeps, and API servers that show theirs.

The test is cert-manager here: it issues the pair, writes its files as a kubelet does, and keeps
``caBundle``. The API server is told by its admission configuration which certificate to show.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
import trustme

from benchmarks.certificates.load import POD
from benchmarks.certificates.observer import NAME
from benchmarks.certificates.process import Replica
from benchmarks.certificates.scene import API_FLAGS, TENANT, Scene
from sharing.cluster.client import Client, PatchType
from sharing.cluster.errors import ApiError, NotFoundError
from sharing.cluster.kind import MUTATING_WEBHOOKS, PODS, SECRETS
from sharing.names import GRANTS_ANNOTATION
from tests.cluster import leftovers
from tests.cluster.controlplane import ControlPlane
from tests.cluster.daemons import start_process
from tests.cluster.ports import free_ports
from tests.cluster.waiting import eventually

pytestmark = [
    pytest.mark.cluster("control plane"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
]

CALLER: Final = "kube-apiserver"
CONFIGURATION: Final = "gpu-sharing"


class Folder:
    """The files: the webhook's pair, and who the API server is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.callers = trustme.CA()
        self.callers.cert_pem.write_to_path(str(path / "callers.crt"))
        self._shown = self.callers.issue_cert(common_name=CALLER)
        (path / "tls").mkdir()

    def issue(self, authority: trustme.CA) -> bytes:
        """Put a pair of an authority there; the certificate in DER."""
        made = authority.issue_cert(NAME)
        for name, content in (
            ("tls.crt", made.cert_chain_pems[0].bytes()),
            ("tls.key", made.private_key_pem.bytes()),
        ):
            (self.path / "new").write_bytes(content)
            (self.path / "new").replace(self.path / "tls" / name)
        return ssl.PEM_cert_to_DER_cert(made.cert_chain_pems[0].bytes().decode())

    def admission(self) -> Path:
        """The API server's admission configuration, by which it shows who it is."""
        self._shown.cert_chain_pems[0].write_to_path(str(self.path / "shown.crt"))
        self._shown.private_key_pem.write_to_path(str(self.path / "shown.key"))
        pair = {
            "client-certificate": str(self.path / "shown.crt"),
            "client-key": str(self.path / "shown.key"),
        }
        users = {"apiVersion": "v1", "kind": "Config", "users": [{"name": NAME, "user": pair}]}
        (self.path / "users.json").write_text(json.dumps(users))
        plugin = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": str(self.path / "users.json"),
        }
        configuration = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": [{"name": "MutatingAdmissionWebhook", "configuration": plugin}],
        }
        (self.path / "admission.json").write_text(json.dumps(configuration))
        return self.path / "admission.json"


@pytest.fixture(scope="module")
def folder() -> Iterator[Folder]:
    with tempfile.TemporaryDirectory(prefix="gs-brought-") as path:
        yield Folder(Path(path))


@pytest.fixture(scope="module")
def plane(folder: Folder) -> Iterator[ControlPlane]:
    home = leftovers.make_folder()
    flags = (*API_FLAGS, f"--admission-control-config-file={folder.admission()}")
    try:
        with ControlPlane(home, api_flags=flags) as running:
            yield running
    finally:
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def first() -> trustme.CA:
    return trustme.CA()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(plane: ControlPlane, folder: Folder, first: trustme.CA) -> AsyncIterator[Scene]:
    """The command itself, with files, and with a check of who calls."""
    home = plane.logs.parent / "scene"
    home.mkdir()
    folder.issue(first)
    async with Scene(plane=plane, folder=home) as made:
        await inject(made.admin, first)
        port, health_port = free_ports(2)
        options = {
            "--kubeconfig": made.account,
            "--cert": folder.path / "tls" / "tls.crt",
            "--key": folder.path / "tls" / "tls.key",
            "--client-ca": folder.path / "callers.crt",
            "--client-name": CALLER,
            "--host": made.host,
            "--port": port,
            "--health-host": "127.0.0.1",
            "--health-port": health_port,
        }
        words = [str(word) for option in options.items() for word in option]
        command = [sys.executable, "-m", "cli.main", "webhook", *words]
        process = start_process(command, plane.logs / "brought.log")
        one = Replica(
            name="brought", host=made.host, port=port, health_port=health_port, process=process
        )
        await made.until_ready(made.adopt(one))
        await eventually("pods are reviewed", lambda: is_reviewed(made.admin))
        yield made


async def inject(client: Client, *authorities: trustme.CA) -> int:
    """Set every caBundle, as cert-manager's injector does; the configuration's generation."""
    pem = b"".join(authority.cert_pem.bytes() for authority in authorities)
    value = base64.b64encode(pem).decode()
    item = await client.get(MUTATING_WEBHOOKS, CONFIGURATION)
    patch = [
        {"op": "add", "path": f"/webhooks/{at}/clientConfig/caBundle", "value": value}
        for at in range(len(item["webhooks"]))
    ]
    done = await client.patch(MUTATING_WEBHOOKS, CONFIGURATION, patch, patch_type=PatchType.JSON)
    return int(done["metadata"]["generation"])


async def is_reviewed(client: Client) -> bool:
    try:
        made = await client.create(PODS, POD, namespace=TENANT, dry_run=True)
    except ApiError:
        return False
    return GRANTS_ANNOTATION in made["metadata"].get("annotations", {})


async def shown(scene: Scene, context: ssl.SSLContext) -> tuple[bytes, bytes]:
    """The certificate that a caller meets, and the answer to its call; nothing if refused."""
    one = scene.replicas[0]
    reader, writer = await asyncio.open_connection(
        one.host, one.port, ssl=context, server_hostname=NAME
    )
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.write(b"GET /mutate HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    try:
        async with asyncio.timeout(10):
            answer = await reader.read()
    except OSError:
        answer = b""
    writer.close()
    return certificate, answer


def caller(*authorities: trustme.CA, as_whom: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for authority in authorities:
        authority.configure_trust(context)
    if as_whom is not None:
        as_whom.configure_cert(context)
    return context


async def test_a_pair_that_others_renew_is_served_and_their_bundle_left_alone(
    scene: Scene, folder: Folder, first: trustme.CA
) -> None:
    second = trustme.CA()
    generation = await inject(scene.admin, first, second)

    renewed = folder.issue(second)

    async def is_served() -> bool:
        assert await is_reviewed(scene.admin)
        return (await shown(scene, caller(first, second)))[0] == renewed

    await eventually("the renewed pair is served", is_served)
    item: dict[str, Any] = await scene.admin.get(MUTATING_WEBHOOKS, CONFIGURATION)
    assert item["metadata"]["generation"] == generation
    managers = {entry["manager"] for entry in item["metadata"]["managedFields"]}
    assert "gpu-sharing-webhook" not in managers
    with pytest.raises(NotFoundError):
        await scene.admin.get(SECRETS, "gpu-sharing-webhook-certs", namespace="gpu-sharing")
    folder.issue(first)
    await eventually("the first authority is back", lambda: is_served_by(scene, first))


async def is_served_by(scene: Scene, authority: trustme.CA) -> bool:
    try:
        return bool(await shown(scene, caller(authority)))
    except ssl.SSLCertVerificationError:
        return False


async def test_nobody_but_the_api_server_is_answered(
    scene: Scene, folder: Folder, first: trustme.CA
) -> None:
    stranger = trustme.CA().issue_cert(common_name=CALLER)
    tenant = folder.callers.issue_cert(common_name="tenant")
    likewise = folder.callers.issue_cert(common_name=CALLER)

    assert await is_reviewed(scene.admin)
    for refused in (None, stranger, tenant):
        assert (await shown(scene, caller(first, as_whom=refused)))[1] == b""
    answer = (await shown(scene, caller(first, as_whom=likewise)))[1]
    assert answer.startswith(b"HTTP/1.1 4"), "it is a GET; that it is answered is what counts"
