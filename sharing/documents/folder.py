"""A file or a folder of manifests, as a person names it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sharing.documents.reading import MOST_BYTES, Document, read_file
from sharing.errors import InputError

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_NO_MANIFESTS: Final = frozenset(
    {"kustomization.yaml", "kustomization.yml", "Chart.yaml", "values.yaml", "values.schema.json"}
)
"""Files that stand beside manifests, for tools that make manifests."""
_MOST_FILES: Final = 20_000


def read_path(path: Path) -> tuple[Document, ...]:
    """The documents of a file, or of all manifests in a folder and its subfolders, by name.

    Hidden files, links to folders, and what kustomize and Helm keep beside manifests are left out.

    Raises:
        InputError: There is nothing there, nothing in it, or a file cannot be read.
    """
    if not path.is_dir():
        if not path.exists():
            raise InputError(str(path), "there is no such file or folder", fix="check the path")
        return read_file(path)
    files = sorted(_files(path))
    if not files:
        raise InputError(
            str(path), "there is no manifest in it", expected="*.yaml, *.yml or *.json"
        )
    if len(files) > _MOST_FILES:
        raise InputError(str(path), f"there are {len(files)} files", expected=f"{_MOST_FILES}")
    return tuple(document for file in files for document in read_file(file))


def contents_hash(path: Path) -> str:
    """A hash of what ``read_path`` would read: names and contents, whatever the dates say.

    Never raises: what cannot be read has a hash as well, which changes once it can be.
    """
    found = hashlib.sha256()
    try:
        files = sorted(_files(path))
    except InputError as error:
        return f"unreadable: {error.wrong}"
    for file in files[: _MOST_FILES + 1]:
        try:
            with file.open("rb") as opened:
                content = opened.read(MOST_BYTES + 1)
        except OSError as error:
            content = f"unreadable: {error.strerror}".encode()
        found.update(f"{file}\0{len(content)}\0".encode(errors="surrogateescape"))
        found.update(content)
    return found.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(str(folder), f"it cannot be read: {error.strerror}") from None
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _NO_MANIFESTS:
            continue
        if entry.is_dir():
            if not entry.is_symlink():
                yield from _files(entry)
        elif entry.suffix in _SUFFIXES:
            yield entry
