"""The image that pods of tests run: a static busybox in one layer, as an OCI layout in a tar.

Source: the OCI image specification, https://github.com/opencontainers/image-spec. Same input,
same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_TYPE: Final = "application/vnd.oci.image"
_FOLDERS: Final = ("bin", "dev", "etc", "proc", "run", "sys", "tmp", "var")
_APPLETS: Final = (
    "cat", "echo", "env", "false", "grep", "id", "ip", "ls", "mount", "printenv", "sh", "sleep",
    "stat", "test", "touch", "true", "wget",
)  # fmt: skip
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(
    path: Path, busybox: Path, names: Sequence[str], *, files: Mapping[str, bytes] | None = None
) -> None:
    """Write an image that sleeps, under several names.

    Args:
        path: The tar to write.
        busybox: A static one.
        names: Such as ``test.local/busybox:1``.
        files: Executable files by path inside, beside busybox.
    """
    layer = _layer(busybox, files or {})
    blobs: dict[str, bytes] = {}
    layer_entry = _blob(blobs, layer, f"{_TYPE}.layer.v1.tar")
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [layer_entry["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": _blob(blobs, _json(config), f"{_TYPE}.config.v1+json"),
        "layers": [layer_entry],
    }
    entry = _blob(blobs, _json(manifest), f"{_TYPE}.manifest.v1+json")
    index = {"schemaVersion": 2, "manifests": [{**entry, **_named(name)} for name in names]}
    with tarfile.open(path, "w") as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", _json(index))
        for digest, content in blobs.items():
            _add(tar, f"blobs/sha256/{digest}", content)


def _named(name: str) -> dict[str, Any]:
    tag = name.rpartition(":")[2]
    return {
        "annotations": {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": tag,
        }
    }


def _layer(busybox: Path, files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in _FOLDERS:
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
        _add(tar, "bin/busybox", busybox.read_bytes(), mode=0o755)
        for applet in _APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for name, content in sorted(files.items()):
            _add(tar, name.lstrip("/"), content, mode=0o755)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


def _blob(blobs: dict[str, bytes], content: bytes, media_type: str) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()
