"""Puts rendered objects on a real control plane, and acts as the accounts that they bring."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.chart import rendering
from tests.cluster.access import Access, RefusedError, write_kubeconfig
from tests.cluster.waiting import until

VERSIONS: Final = {
    "": "v1",
    "gpu.sharing": "v1alpha1",
    "coordination.k8s.io": "v1",
    "admissionregistration.k8s.io": "v1",
}
"""Of the groups that our programs have rights on."""
NAMESPACE: Final = rendering.NAMESPACE
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NUMBERS: Final = itertools.count(1)
FOREIGN_GROUPS: Final = ("monitoring.coreos.com", "cert-manager.io")
"""Kinds that others bring; a bare control plane has none of them."""
_PLURALS: Final = {
    "NetworkPolicy": "networkpolicies",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "GPULayout": "gpulayouts",
}


def is_ours_to_try(item: Mapping[str, Any]) -> bool:
    """Whether a bare control plane knows the object's kind."""
    return str(item["apiVersion"]).partition("/")[0] not in FOREIGN_GROUPS


def path_of(item: Mapping[str, Any], *, collection: bool = False) -> str:
    """An object's address, or that of its collection."""
    group = item["apiVersion"]
    plural = _PLURALS.get(item["kind"], item["kind"].lower() + "s")
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    namespace = item["metadata"].get("namespace")
    place = f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"
    return place if collection else f"{place}/{item['metadata']['name']}"


def namespace() -> dict[str, Any]:
    """The namespace that everything goes into."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": rendering.NAMESPACE}}


def create(access: Access, items: Iterable[Mapping[str, Any]]) -> None:
    """Create objects in their order, as admin."""
    for item in items:
        access.call("POST", path_of(item, collection=True), item)


def annotated(item: Mapping[str, Any], annotations: Mapping[str, str]) -> dict[str, Any]:
    """An object with more annotations."""
    metadata = item["metadata"]
    said = {**metadata.get("annotations", {}), **annotations}
    return {**item, "metadata": {**metadata, "annotations": said}}


def crds(access: Access) -> dict[str, set[str]]:
    """The conditions that hold, of each of our CRDs."""
    return {
        each["metadata"]["name"]: {
            one["type"]
            for one in each.get("status", {}).get("conditions") or ()
            if one["status"] == "True"
        }
        for each in access.call("GET", CRDS)["items"]
        if each["spec"]["group"] == "gpu.sharing"
    }


def is_crd(item: Mapping[str, Any]) -> bool:
    """Whether an object is a CustomResourceDefinition."""
    return bool(item["kind"] == "CustomResourceDefinition")


@contextlib.contextmanager
def installed(access: Access, items: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Objects for a while; at the end they are gone, whatever happened."""
    try:
        create(access, items)
        yield
    finally:
        remove(access, items)


def remove(access: Access, items: Sequence[Mapping[str, Any]]) -> None:
    """Delete objects, as admin, and wait until there is none of them."""
    left = [path_of(item) for item in items]
    for path in left:
        with contextlib.suppress(RefusedError):
            access.call("DELETE", path)
    until("they are gone", lambda: not any(is_there(access, path) for path in left), timeout_s=60)


def is_there(access: Access, path: str) -> bool:
    """Whether there is an object at an address."""
    try:
        access.call("GET", path)
    except RefusedError as error:
        if error.code != http.client.NOT_FOUND:
            raise
        return False
    return True


def bound_account(access: Access, name: str, node: str, *, server: str = "") -> Path:
    """A kubeconfig of one of our service accounts, as a pod of it on a node has it.

    Args:
        access: The cluster.
        name: Of the account.
        node: That the pod is bound to.
        server: Address of the API server from there; as from here if empty.
    """
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{name}-on-{node}-{next(_NUMBERS)}", "namespace": NAMESPACE},
        "spec": {
            "nodeName": node,
            "serviceAccountName": name,
            "automountServiceAccountToken": False,
            "containers": [
                {"name": "main", "image": "registry.example/app:1", "imagePullPolicy": "Never"}
            ],
        },
    }
    made = access.call("POST", path_of(pod, collection=True), pod)
    metadata = made["metadata"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"]}
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "expirationSeconds": 3600,
            "boundObjectRef": {**reference, "uid": metadata["uid"]},
        },
    }
    accounts = f"/api/v1/namespaces/{rendering.NAMESPACE}/serviceaccounts"
    answer = access.call("POST", f"{accounts}/{name}/token", asked)
    return write_kubeconfig(
        access.folder / f"{metadata['name']}.kubeconfig",
        server or access.server,
        access.ca,
        str(answer["status"]["token"]),
    )


def calls_of(log: Path, user: str, since: int) -> list[dict[str, Any]]:
    """What an account asked for, as the API server wrote it down: one entry a stage.

    Args:
        log: The audit log.
        user: The account's user name.
        since: Size of the log, in bytes, when it began to ask.
    """
    with log.open("rb") as file:
        file.seek(since)
        events = [json.loads(line) for line in file if line.endswith(b"\n")]
    return [
        event
        for event in events
        if event["user"].get("username") == user
        and event["stage"] in ("ResponseStarted", "ResponseComplete")
    ]
