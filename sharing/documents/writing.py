"""YAML out of values, such that kubectl reads the same values back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import yaml

from sharing.documents.scalar import plain_scalar


class _Dumper(yaml.CSafeDumper):
    """Quotes each text that kubectl would read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        """Aliases are for machines; every value is written out."""
        del data
        return True


def _represent_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text.rstrip("\n") and not any(line != line.rstrip() for line in text.split("\n")):
        style = "|"
    elif plain_scalar(text) != text:
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_represent: Callable[[Any, str], yaml.Node] = _represent_text
_Dumper.add_representer(str, _represent)


def write_documents(values: Iterable[Any]) -> str:
    """YAML of several documents, keys in their own order."""
    return yaml.dump_all(
        values,
        Dumper=_Dumper,
        sort_keys=False,
        explicit_start=True,
        width=10_000,
        allow_unicode=True,
        default_flow_style=False,
    )
