"""A certificate from files that somebody else renews, such as cert-manager.

Contents are compared, not dates or events: a kubelet swaps a link to a folder, of which
watches tell unreliably, and certificate and key may be written one after the other. A
pair is taken when it is a sound pair; until then the old one is served on. Bundles are
left alone in this mode: whoever renews the files cares for trust.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from certs.errors import CertificateError, Fault
from certs.leaf import Leaf
from certs.pem import MAX_PEM_BYTES
from sharing.errors import GpuSharingError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from certs.context import HotContext

POLL_S: Final = 5.0

_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFiles:
    """Where a certificate, its chain behind it, and its key are."""

    certificate: Path
    key: Path

    def read(self) -> tuple[Leaf, str]:
        """What the files hold now, and a hash of it.

        Raises:
            InputError: A file is missing, too large or malformed, or the two are no pair.
        """
        certificate = read_file(self.certificate, "certificate")
        key = read_file(self.key, "key")
        leaf = Leaf.from_pem(
            certificate,
            key,
            subject=f"certificate {self.certificate}",
            key_subject=f"key {self.key}",
        )
        return leaf, hashlib.sha256(certificate + b"\0" + key).hexdigest()


class FileKeeper:
    """Serves what files hold, whatever becomes of them.

    Args:
        files: Where to look.
        context: What the program listens with.
        names: Names that callers ask for; a certificate without one is not taken.
        on_failure: Told the fault of each newcomer that was not taken, once.
    """

    def __init__(
        self,
        files: PairFiles,
        context: HotContext,
        *,
        names: tuple[str, ...] = (),
        on_failure: Callable[[Fault], None] = lambda _: None,
    ) -> None:
        self._files = files
        self._context = context
        self._names = names
        self._on_failure = on_failure
        self._seen = ""
        self._complaint = ""

    def start(self) -> None:
        """Serve what the files hold now.

        Raises:
            InputError: They hold no certificate that can be served.
        """
        self._take()

    def look(self) -> bool:
        """Serve what the files hold, if it is new and sound; whether anything changed."""
        try:
            changed = self._take()
        except GpuSharingError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                fault = error.fault if isinstance(error, CertificateError) else Fault.UNREADABLE
                self._on_failure(fault)
                _log.warning("certificate was not taken into service", error=str(error))
            return False
        self._complaint = ""
        return changed

    async def run(self, *, poll_s: float = POLL_S) -> None:
        """Look every so many seconds until cancelled."""
        while True:
            await asyncio.sleep(poll_s)
            self.look()

    def _take(self) -> bool:
        leaf, content = self._files.read()
        if content == self._seen:
            return False
        # Not remembered before it was taken: what is not valid yet may become so.
        changed = self._context.swap(
            leaf, names=self._names, subject=f"certificate {self._files.certificate}"
        )
        self._seen = content
        if changed:
            _log.info("certificate was taken into service", not_after=leaf.not_after.isoformat())
        return changed


def read_file(path: Path, what: str) -> bytes:
    """What a PEM file holds.

    Raises:
        InputError: It cannot be read or is too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_PEM_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"{what} {path}",
            f"cannot be read: {error.strerror or error}",
            expected="a PEM file",
            fix="check the path, the mount and the permissions",
        ) from error
    if len(content) > MAX_PEM_BYTES:
        raise InputError(f"{what} {path}", "is larger than 1 MiB", expected="a PEM file")
    return content


def write_files(folder: Path, contents: Mapping[str, bytes], *, replace: bool = False) -> None:
    """Write files, each as a whole or not at all; keys are readable by their owner only.

    Raises:
        InputError: One is there already and may not be replaced, or cannot be written.
    """
    there = [name for name in contents if (folder / name).exists()]
    if there and not replace:
        raise InputError(
            f"folder {folder}",
            f"holds {', '.join(there)} already",
            fix="choose another folder, or replace what is there",
            example=f"--force --out {folder}",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                if not name.endswith(".key"):
                    os.fchmod(descriptor, 0o644)
            Path(temporary).replace(folder / name)
    except OSError as error:
        raise InputError(
            f"folder {folder}",
            f"cannot be written to: {error.strerror or error}",
            fix="choose another folder",
        ) from error
