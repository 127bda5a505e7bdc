"""The chart's service accounts with the chart's rights, for programs that tests start."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.access import Access, RefusedError

MANIFESTS: Final = Path(__file__).parents[2] / "deploy" / "manifests" / "gpu-sharing-simulated.yaml"
NAMESPACE: Final = "gpu-sharing"
PROGRAMS: Final = ("webhook", "controller", "agent")
_KINDS: Final = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def chart_identities(access: Access) -> dict[str, Path]:
    """Kubeconfigs by program, after the accounts and their rights were made."""
    _make(access, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for manifest in yaml.safe_load_all(MANIFESTS.read_text("utf-8")):
        if manifest and manifest["kind"] in _KINDS:
            _make(access, _collection(manifest), manifest)
    return {name: access.service_account(NAMESPACE, f"gpu-sharing-{name}") for name in PROGRAMS}


def _make(access: Access, path: str, manifest: Mapping[str, Any]) -> None:
    try:
        access.call("POST", path, manifest)
    except RefusedError as error:
        if error.code != http.client.CONFLICT:
            raise


def _collection(manifest: Mapping[str, Any]) -> str:
    version, plural = manifest["apiVersion"], manifest["kind"].lower() + "s"
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = manifest["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"
