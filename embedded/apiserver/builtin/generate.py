"""Writes ``types.json`` from the models of the ``kubernetes`` client.

The client's models are generated from the API's own OpenAPI document, so the table states
every field of every built-in type that the embedded API server serves. It is written to a
file because importing the models costs 50 MiB and most of a second.

Run it with ``python -m embedded.apiserver.builtin.generate`` after the client was updated;
it prints how many types it wrote.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from embedded.apiserver.kinds import BUILTIN

TARGET: Final = Path(__file__).with_name("types.json")

_EXTRA_ROOTS: Final = ("V1Binding", "V1Eviction", "V1Scale", "V1DeleteOptions")
_SIMPLE: Final = {
    "str": "str",
    "int": "int",
    "float": "num",
    "bool": "bool",
    "datetime": "time",
    "object": "any",
    "date": "time",
    "bytes": "str",
    "bytearray": "str",
}
# The client calls a quantity a string; these are the fields that hold one.
_QUANTITIES: Final = {
    "V1ResourceRequirements": ("limits", "requests"),
    "V1VolumeResourceRequirements": ("limits", "requests"),
    "V1NodeStatus": ("capacity", "allocatable"),
    "V1ResourceQuotaSpec": ("hard",),
    "V1ResourceQuotaStatus": ("hard", "used"),
    "V1PodSpec": ("overhead",),
    "V1Overhead": ("podFixed",),
    "V1ContainerStatus": ("allocatedResources",),
    "V1EmptyDirVolumeSource": ("sizeLimit",),
    "V1ResourceFieldSelector": ("divisor",),
}


def _translate(owner: str, wire_name: str, declared: str) -> str:
    """The type of one field in the table's grammar: ``str``, ``[T]``, ``{T}`` or a type name."""
    if listed := re.fullmatch(r"[Ll]ist\[(.*)\]", declared):
        return f"[{_translate(owner, wire_name, listed[1])}]"
    if mapped := re.fullmatch(r"[Dd]ict(?:\[|\()str, (.*)[\])]", declared):
        return "{" + _translate(owner, wire_name, mapped[1]) + "}"
    if wire_name in _QUANTITIES.get(owner, ()) and declared == "str":
        return "quantity"
    return _SIMPLE.get(declared, declared)


def _table(models: Any) -> dict[str, dict[str, str]]:
    """Every type that the served kinds reach."""
    table: dict[str, dict[str, str]] = {}
    waiting = [kind.type_name for kind in BUILTIN] + list(_EXTRA_ROOTS)
    while waiting:
        owner = waiting.pop()
        if owner in table:
            continue
        model = getattr(models, owner)
        table[owner] = {
            wire: _translate(owner, wire, model.openapi_types[name])
            for name, wire in model.attribute_map.items()
        }
        waiting += [
            found
            for declared in table[owner].values()
            if (found := declared.strip("[]{}")) and hasattr(models, found)
        ]
    return {name: dict(sorted(table[name].items())) for name in sorted(table)}


def main() -> None:
    """Write the table."""
    from kubernetes.client import models

    table = _table(models)
    TARGET.write_text(json.dumps(table, separators=(",", ":"), sort_keys=True) + "\n")
    print(f"{TARGET.name}: {len(table)} types")  # noqa: T201 - a tool for a terminal


if __name__ == "__main__":
    main()
