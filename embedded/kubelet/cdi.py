"""Container Device Interface: spec files in a folder, and what a device name asks for.

As container runtimes do it (github.com/cncf-tags/container-device-interface): every
``*.json`` and ``*.yaml`` file of the folders is read, strictly, when a container is made.
A later folder's devices stand before an earlier one's; a name that two files of one
folder define is nobody's. A file that is wrong hides its devices and no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import orjson
import structlog
import yaml

from embedded.errors import EmbeddedError

_log: Final = structlog.get_logger()
_KIND: Final = re.compile(
    r"[A-Za-z]([-A-Za-z0-9_.]*[A-Za-z0-9])?/[A-Za-z]([-A-Za-z0-9_]*[A-Za-z0-9])?", re.ASCII
)
_DEVICE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.:]*[A-Za-z0-9])?", re.ASCII)
_VERSION: Final = re.compile(r"v?(0\.[1-8]\.0|1\.[01]\.0)", re.ASCII)
_SPEC_KEYS: Final = {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}
_DEVICE_KEYS: Final = {"name", "annotations", "containerEdits"}
_EDIT_KEYS: Final = {
    "env",
    "deviceNodes",
    "netDevices",
    "hooks",
    "mounts",
    "intelRdt",
    "additionalGids",
}


class UnresolvableError(EmbeddedError):
    """Device names that no spec file defines; the text is the runtime's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A device node in the container.

    Attributes:
        path: Where it appears.
        host_path: What it is on the host.
        permissions: Any of r, w and m.
    """

    path: str
    host_path: str
    permissions: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A host folder or file in the container."""

    container_path: str
    host_path: str
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """What a device, or a whole spec file, changes in a container.

    Attributes:
        env: Variables as name and value, in order; of a name set twice the last counts.
        nodes: Device nodes.
        mounts: Mounts.
    """

    env: tuple[tuple[str, str], ...] = ()
    nodes: tuple[Node, ...] = ()
    mounts: tuple[Mount, ...] = ()

    def then(self, later: Edits) -> Edits:
        """These edits followed by others."""
        return Edits(
            env=self.env + later.env,
            nodes=self.nodes + later.nodes,
            mounts=self.mounts + later.mounts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One spec file.

    Attributes:
        path: The file.
        kind: Vendor and class.
        devices: Edits by device name.
        common: Edits for every container that gets any of its devices.
    """

    path: Path
    kind: str
    devices: Mapping[str, Edits]
    common: Edits = field(default_factory=Edits)


def resolve(names: Sequence[str], folders: Iterable[Path]) -> Edits:
    """The edits that device names ask for, in the order of the names.

    Args:
        names: Qualified names, ``vendor/class=device``.
        folders: Where spec files are, the most important last.

    Raises:
        UnresolvableError: If a name is defined nowhere.
    """
    if not names:
        return Edits()
    known = _devices(folders)
    missing = [name for name in names if name not in known]
    if missing:
        raise UnresolvableError(
            "", f"CDI device injection failed: unresolvable CDI devices {', '.join(missing)}"
        )
    edits = Edits()
    opened: set[Path] = set()
    for name in dict.fromkeys(names):
        spec, device = known[name]
        if spec.path not in opened:
            opened.add(spec.path)
            edits = edits.then(spec.common)
        edits = edits.then(device)
    return edits


def _devices(folders: Iterable[Path]) -> dict[str, tuple[Spec, Edits]]:
    known: dict[str, tuple[Spec, Edits]] = {}
    for folder in folders:
        here: dict[str, tuple[Spec, Edits]] = {}
        disputed: set[str] = set()
        for spec in _specs(folder):
            for device, edits in spec.devices.items():
                name = f"{spec.kind}={device}"
                if name in here:
                    disputed.add(name)
                    _log.warning("CDI device has two definitions", device=name)
                here[name] = (spec, edits)
        known |= here
        for name in disputed:
            del known[name]
    return known


def _specs(folder: Path) -> list[Spec]:
    specs = []
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.yaml")]):
        try:
            stat = path.stat()
            specs.append(_read(path, (stat.st_ino, stat.st_mtime_ns, stat.st_size)))
        except (EmbeddedError, OSError, ValueError, yaml.YAMLError) as error:
            _log.warning("CDI spec was ignored", path=str(path), error=str(error))
    return specs


@lru_cache(maxsize=256)
def _read(path: Path, stamp: tuple[int, int, int]) -> Spec:
    """A spec file, read once for each of its versions: nodes have hundreds of shares."""
    del stamp
    content = path.read_bytes()
    return parse(path, orjson.loads(content) if path.suffix == ".json" else _yaml(content))


def _yaml(content: bytes) -> object:
    # The loader in C where PyYAML has it: the one in Python takes a second for 400 devices.
    return yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe


def parse(path: Path, document: object) -> Spec:
    """A decoded spec file.

    Raises:
        EmbeddedError: If it breaks the CDI specification; unknown keys do.
    """
    subject = f"CDI spec {path}"
    spec = _mapping(document, _SPEC_KEYS, subject)
    kind, version = spec.get("kind"), spec.get("cdiVersion")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise EmbeddedError(subject, f"cdiVersion is {version!r}", example="0.6.0")
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise EmbeddedError(subject, f"kind is {kind!r}", example="gpu.sharing/share")
    devices: dict[str, Edits] = {}
    for listed in _list(spec, "devices", subject):
        device = _mapping(listed, _DEVICE_KEYS, subject)
        name = device.get("name")
        if not isinstance(name, str) or not _DEVICE.fullmatch(name):
            raise EmbeddedError(subject, f"a device is called {name!r}")
        if name in devices:
            raise EmbeddedError(subject, f"two devices are called {name}")
        if not device.get("containerEdits"):
            raise EmbeddedError(subject, f"device {name} edits nothing")
        devices[name] = _edits(device["containerEdits"], subject)
    if not devices:
        raise EmbeddedError(subject, "has no devices")
    common = _edits(spec.get("containerEdits") or {}, subject)
    return Spec(path=path, kind=kind, devices=devices, common=common)


def _edits(raw: object, subject: str) -> Edits:
    edits = _mapping(raw, _EDIT_KEYS, subject)
    env = []
    for entry in _list(edits, "env", subject):
        name, equals, value = str(entry).partition("=")
        if not isinstance(entry, str) or not name or not equals:
            raise EmbeddedError(subject, f"env has {entry!r}", expected="NAME=value")
        env.append((name, value))
    nodes = [_node(entry, subject) for entry in _list(edits, "deviceNodes", subject)]
    mounts = [_mount(entry, subject) for entry in _list(edits, "mounts", subject)]
    return Edits(env=tuple(env), nodes=tuple(nodes), mounts=tuple(mounts))


def _node(raw: object, subject: str) -> Node:
    keys = {"path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"}
    node = _mapping(raw, keys, subject)
    path = _text(node, "path", subject)
    return Node(
        path=path,
        host_path=node.get("hostPath") or path,
        permissions=node.get("permissions") or "rwm",
    )


def _mount(raw: object, subject: str) -> Mount:
    mount = _mapping(raw, {"hostPath", "containerPath", "options", "type"}, subject)
    return Mount(
        container_path=_text(mount, "containerPath", subject),
        host_path=_text(mount, "hostPath", subject),
        read_only="ro" in _list(mount, "options", subject),
    )


def _mapping(raw: object, keys: set[str], subject: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise EmbeddedError(subject, f"{raw!r} is no mapping")
    unknown = sorted(str(key) for key in raw if key not in keys)
    if unknown:
        raise EmbeddedError(subject, f"unknown key {unknown[0]}", expected=", ".join(sorted(keys)))
    return raw


def _list(raw: Mapping[str, Any], key: str, subject: str) -> list[Any]:
    listed = raw.get(key) or []
    if not isinstance(listed, list):
        raise EmbeddedError(subject, f"{key} is no list")
    return listed


def _text(raw: Mapping[str, Any], key: str, subject: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value:
        raise EmbeddedError(subject, f"{key} is {value!r}", expected="text")
    return value
