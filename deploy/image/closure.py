# ruff: noqa: INP001 - a script of the image's build, no part of a package
"""Those entries of the lock that some packages need, with their hashes: the image holds no more.

    python deploy/image/closure.py requirements.lock --project pyproject.toml > runtime.lock
    python deploy/image/closure.py requirements.lock hatchling > build.lock

Runs in the image's build, so it needs the standard library only.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_ENTRY: Final = re.compile(r"^([A-Za-z0-9._-]+)==\S+.*(?:\n[ #].*)*", re.MULTILINE)
_VIA: Final = re.compile(r"^    # +(?:via +)?([A-Za-z0-9._-]+)(?: .*)?$", re.MULTILINE)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def normal(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entries_of(lock: str) -> dict[str, str]:
    """The lock's entries by name."""
    return {normal(found[1]): found[0] for found in _ENTRY.finditer(lock)}


def parents_of(entry: str) -> set[str]:
    """Which packages an entry is there for, as its comment says."""
    return {normal(found[1]) for found in _VIA.finditer(entry)} - {"via"}


def closure(entries: Mapping[str, str], roots: Iterable[str]) -> list[str]:
    """The names of the roots and of all that they need, sorted.

    Raises:
        SystemExit: A root is not in the lock.
    """
    found = {normal(root) for root in roots}
    if absent := sorted(found - entries.keys()):
        sys.exit(f"{', '.join(absent)}: not in the lock; make lock resolves it")
    while True:
        more = {name for name, entry in entries.items() if parents_of(entry) & found} - found
        if not more:
            return sorted(found)
        found |= more


def project_roots(pyproject: str) -> list[str]:
    """What the programs themselves depend on, extras and groups left out."""
    lines = tomllib.loads(pyproject)["project"]["dependencies"]
    return [found[0] for found in map(_NAME.match, lines) if found]


def main() -> None:
    """Print a smaller lock."""
    parser = argparse.ArgumentParser(description="Print the part of a lock that packages need.")
    parser.add_argument("lock", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--project", type=Path, help="a pyproject.toml, for its dependencies")
    given = parser.parse_args()
    roots = [*given.names]
    if given.project is not None:
        roots += project_roots(given.project.read_text("utf-8"))
    entries = entries_of(given.lock.read_text("utf-8"))
    for name in closure(entries, roots):
        sys.stdout.write(entries[name].rstrip() + "\n")


if __name__ == "__main__":
    main()
