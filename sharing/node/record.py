"""Files that must survive a kill at any instruction: written whole or not at all, read strictly.

A file is one JSON document: a version, a checksum over the content, and the content. It is
written to a neighbour, flushed to the disk and renamed into place. What cannot be read is set
aside with its reason, never guessed at and never in the way.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Final

import structlog

from sharing.errors import GpuSharingError, UnavailableError, shown

VERSION: Final = 1
_MOST_BYTES: Final = 4 << 20
_log: Final = structlog.get_logger()


class RecordError(GpuSharingError):
    """A file of ours is damaged or comes from another version."""


def write(path: Path, kind: str, content: dict[str, Any]) -> None:
    """Write a record atomically and durably.

    Args:
        path: Where; its folder must exist.
        kind: What the record is, checked when it is read.
        content: JSON values only.

    Raises:
        UnavailableError: The disk refuses.
    """
    body = _canonical(content)
    document = {
        "version": VERSION,
        "kind": kind,
        "checksum": _checksum(kind, body),
        "content": content,
    }
    neighbour = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(neighbour, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(document, sort_keys=True).encode())
            file.flush()
            os.fsync(file.fileno())
        neighbour.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise UnavailableError(
            f"state file {path}",
            f"cannot be written: {error.strerror}",
            fix="free disk space and make its folder writable; no GPU is changed meanwhile",
        ) from error


def read(path: Path, kind: str) -> dict[str, Any] | None:
    """The content of a record; None if there is no file.

    Raises:
        RecordError: It is damaged, of another kind or version, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(f"state file {path}", f"cannot be read: {error.strerror}") from error
    if len(raw) > _MOST_BYTES:
        raise RecordError(f"state file {path}", f"is larger than {_MOST_BYTES} bytes")
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"state file {path}", "is no JSON; it was cut or overwritten") from error
    return _content(document, path, kind)


def recover(path: Path, kind: str) -> dict[str, Any] | None:
    """As ``read``, but a record that cannot be read is moved aside and told of in the log."""
    try:
        return read(path, kind)
    except RecordError as error:
        aside = path.with_name(f"{path.name}.unreadable")
        try:
            path.replace(aside)
        except OSError as refused:
            _log.warning("state file was passed over", error=str(error), refused=str(refused))
        else:
            _log.warning("state file was set aside", error=str(error), kept_as=str(aside))
        return None


def make_folder(path: Path) -> Path:
    """Make a folder for records, if it is not there.

    Raises:
        UnavailableError: It cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(
            f"state folder {path}",
            f"cannot be made: {error.strerror}",
            fix="choose a folder that may be written and that outlives reboots",
            example="--state-dir /var/lib/gpu-sharing",
        ) from error
    return path


def remove(path: Path) -> None:
    """Remove a record, if it is there."""
    path.unlink(missing_ok=True)


def _content(document: object, path: Path, kind: str) -> dict[str, Any]:
    subject = f"state file {path}"
    if not isinstance(document, dict) or not isinstance(document.get("content"), dict):
        raise RecordError(subject, "is not a record", expected="version, kind, checksum, content")
    if document.get("version") != VERSION or document.get("kind") != kind:
        raise RecordError(
            subject,
            f"is {shown(document.get('kind'))} of version {shown(document.get('version'))}",
            expected=f"{kind!r} of version {VERSION}",
        )
    content: dict[str, Any] = document["content"]
    if document.get("checksum") != _checksum(kind, _canonical(content)):
        raise RecordError(subject, "does not match its checksum; it was changed or damaged")
    return content


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _checksum(kind: str, body: bytes) -> str:
    return hashlib.sha256(f"{kind}\n{VERSION}\n".encode() + body).hexdigest()
