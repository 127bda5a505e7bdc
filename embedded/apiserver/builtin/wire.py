"""Writes ``wire.json``: the protobuf field numbers of the built-in kinds.

kubectl sends what ``kubectl create namespace`` and its like make as protobuf, so the server
has to read it. The numbers come from the ``generated.proto`` files of the Go modules
``k8s.io/api`` and ``k8s.io/apimachinery``; run, with both unpacked under one folder as ``api``
and ``apimachinery``, ``python -m embedded.apiserver.builtin.wire FOLDER``.

A row is message → field number → [JSON name, type]. Types: ``s`` string, ``n`` integer,
``b`` boolean, ``y`` bytes, ``d`` double, a special form (``time``, ``quantity``, …) or a
message; ``[`` before it for repeated, ``{`` for a map, ``^`` for a struct that JSON inlines.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Final

from embedded.apiserver.builtin.types import table as json_types
from embedded.apiserver.kinds import BUILTIN

TARGET: Final = Path(__file__).with_name("wire.json")

_SCALARS: Final = {
    "string": "s",
    "bytes": "y",
    "bool": "b",
    "double": "d",
    "int32": "n",
    "int64": "n",
    "uint32": "n",
    "uint64": "n",
}
_META: Final = "apimachinery.pkg.apis.meta.v1."
_SPECIAL: Final = {
    f"{_META}Time": "time",
    f"{_META}MicroTime": "time",
    f"{_META}FieldsV1": "json",
    "apimachinery.pkg.api.resource.Quantity": "quantity",
    "apimachinery.pkg.util.intstr.IntOrString": "intstr",
    "apimachinery.pkg.runtime.RawExtension": "json",
}
_EXTRA: Final = {
    "api.policy.v1.Eviction": "V1Eviction",
    "api.core.v1.Binding": "V1Binding",
    "api.autoscaling.v1.Scale": "V1Scale",
    f"{_META}DeleteOptions": "V1DeleteOptions",
}
_FIELD: Final = re.compile(
    r"^\s*(?:(?P<label>optional|repeated)\s+)?(?:map<string,\s*(?P<value>[\w.]+)>|(?P<type>[\w.]+))"
    r"\s+(?P<name>\w+)\s*=\s*(?P<number>\d+);",
    re.MULTILINE,
)
_MESSAGE: Final = re.compile(r"^message (?P<name>\w+) \{(?P<body>.*?)^\}", re.MULTILINE | re.DOTALL)

Rows = dict[str, dict[str, list[str]]]


def _messages(folder: Path) -> dict[str, list[re.Match[str]]]:
    """Full message name → its fields."""
    found = {}
    for path in sorted(folder.rglob("generated.proto")):
        text = re.sub(r"//.*", "", path.read_text())
        package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
        if package is None:
            continue
        for message in _MESSAGE.finditer(text):
            name = f"{package[1].removeprefix('k8s.io.')}.{message['name']}"
            found[name] = list(_FIELD.finditer(message["body"]))
    return found


def _full(name: str, owner: str) -> str:
    if name.startswith(".k8s.io."):
        return name.removeprefix(".k8s.io.")
    return f"{owner.rpartition('.')[0]}.{name}"


def _type(declared: str, owner: str) -> str:
    if declared in _SCALARS:
        return _SCALARS[declared]
    full = _full(declared, owner)
    return _SPECIAL.get(full, full)


def _rows(messages: dict[str, list[re.Match[str]]]) -> Rows:
    rows: Rows = {}
    waiting = [(message, type_name) for message, type_name in _roots().items()]
    while waiting:
        message, type_name = waiting.pop()
        if message in rows or message not in messages:
            continue
        known = json_types().get(type_name, {})
        rows[message] = {}
        for field in messages[message]:
            kind = _type(field["value"] or field["type"], message)
            mark = "{" if field["value"] else "[" if field["label"] == "repeated" else ""
            # A few Go fields have no JSON name in the file but their Go name (Webhooks).
            name = field["name"][0].lower() + field["name"][1:]
            inline = not mark and kind in messages and name not in known
            rows[message][field["number"]] = [name, ("^" if inline else mark) + kind]
            if kind in messages:
                declared = known.get(name, "any").strip("[]{}")
                waiting.append((kind, type_name if inline else declared))
    return rows


def _roots() -> dict[str, str]:
    roots = {
        f"api.{kind.group.partition('.')[0] or 'core'}.{kind.version}.{kind.kind}": kind.type_name
        for kind in BUILTIN
    }
    return roots | _EXTRA


def main() -> None:
    """Write the table."""
    rows = _rows(_messages(Path(sys.argv[1])))
    TARGET.write_text(json.dumps(rows, separators=(",", ":"), sort_keys=True) + "\n")
    print(f"{TARGET.name}: {len(rows)} messages")  # noqa: T201 - a tool for a terminal


if __name__ == "__main__":
    main()
