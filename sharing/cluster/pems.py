"""Certificates and keys that stand inside a kubeconfig, as the files that TLS libraries want."""

from __future__ import annotations

import atexit
import base64
import hashlib
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_made: Final[dict[bytes, Path]] = {}
"""Files by what they hold, so that loading anew makes no new ones; removed at the end."""


def file_of(section: Mapping[str, Any], key: str) -> str:
    """The file of a certificate or key that a kubeconfig's cluster or user names.

    Data in the kubeconfig wins over a file, as for kubectl.

    Args:
        section: The cluster or user, checked by ``kubeconfig``.
        key: The field that names a file; its data are in ``<key>-data``.

    Returns:
        A path, or nothing where neither is named.

    Raises:
        OSError: There is no room for a file.
    """
    data = section.get(f"{key}-data")
    if not data:
        return str(section.get(key) or "")
    content = base64.b64decode(data)
    digest = hashlib.sha256(content).digest()
    path = _made.get(digest)
    if path is None or not path.is_file():
        if not _made:
            atexit.register(_remove)
        descriptor, name = tempfile.mkstemp(prefix="gpu-sharing-", suffix=".pem")  # for us alone
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        path = _made[digest] = Path(name)
    return str(path)


def _remove() -> None:
    for path in _made.values():
        with suppress(OSError):
            path.unlink()
