"""A node's wanted layout from a file, for a node without an API server.

    - {gpus: "0-1", mode: mig, sizes: {1g.10gb: 4, 3g.40gb: 1}}
    - {gpus: rest, mode: mps, sizes: {1of4: 4}}

A GPULayout manifest does as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sharing.api.layout import GpuLayoutSpec
from sharing.api.model import parse_model
from sharing.documents import read_file
from sharing.errors import InputError, shown
from sharing.layout import LayoutEntry

_EXAMPLE: Final = "- {gpus: rest, mode: mps, sizes: {1of4: 4}}"


def read_layout(path: Path) -> tuple[LayoutEntry, ...]:
    """The layout entries of a file, in order.

    Raises:
        InputError: It cannot be read, or is neither a list of entries nor a GPULayout.
    """
    documents = read_file(path)
    if len(documents) != 1:
        raise InputError(
            str(path), f"holds {len(documents)} documents", expected="one", example=_EXAMPLE
        )
    value = documents[0].value
    if isinstance(value, Mapping) and value.get("kind") == "GPULayout":
        spec = value.get("spec")
        return parse_model(GpuLayoutSpec, spec, f"{path}, spec").entries()
    entries = value.get("gpus") if isinstance(value, Mapping) else value
    if not isinstance(entries, list):
        raise InputError(
            str(path),
            f"{shown(value)} is no layout",
            expected="a list of layout entries, or a GPULayout manifest",
            example=_EXAMPLE,
        )
    return parse_model(GpuLayoutSpec, {"gpus": entries}, str(path)).entries()
