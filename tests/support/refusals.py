"""The objects that the docs say are refused, and with which words: read from the docs.

The same list is told to the embedded API server and to a real one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from sharing.cluster.client import Client
from sharing.cluster.errors import ApiError
from sharing.cluster.kind import GPU_LAYOUTS, GPU_NODES, SHARING_PROFILES, Kind

_DOCS: Final = Path(__file__).parents[2] / "docs"
_ROW: Final = re.compile(r"^\| `(?P<value>\{.*\})` \| (?P<says>.+) \|$", re.MULTILINE)
_INVALID: Final = 422
_UUID: Final = "GPU-00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One bad object.

    Attributes:
        kind: Its kind.
        text: As the docs have it.
        spec: The object's spec.
        says: What the answer has to say.
    """

    kind: Kind
    text: str
    spec: Any
    says: str

    @property
    def manifest(self) -> dict[str, Any]:
        """The object."""
        return {
            "apiVersion": self.kind.api_version, "kind": self.kind.kind,
            "metadata": {"name": "refused"}, "spec": self.spec,
        }  # fmt: skip


def refusals() -> Iterator[Refusal]:
    """Everything that the docs promise to be refused."""
    for row in _rows("policies.md", "| spec of a SharingProfile |"):
        spec = yaml.safe_load(row["value"])
        yield Refusal(kind=SHARING_PROFILES, text=row["value"], spec=spec, says=row["says"])
    for row in _rows("layouts.md", "| entry of a GPULayout, or layout of a GPUNode |"):
        entry = yaml.safe_load(row["value"])
        layout = {key: value for key, value in entry.items() if key != "gpus"}
        both: tuple[tuple[Kind, Any], ...] = (
            (GPU_LAYOUTS, {"gpus": [entry]}),
            (GPU_NODES, {"gpus": [{"uuid": _UUID, "layout": layout}]}),
        )
        for kind, spec in both:
            yield Refusal(kind=kind, text=row["value"], spec=spec, says=row["says"])


async def broken_promises(client: Client) -> dict[str, str]:
    """What an API server says to each object that it does not refuse as the docs say."""
    wrong = {}
    for bad in refusals():
        try:
            await client.create(bad.kind, bad.manifest)
        except ApiError as error:
            if error.code == _INVALID and bad.says in error.message:
                continue
            wrong[f"{bad.kind.kind} {bad.text}"] = f"{error.code}: {error.message}"
        else:
            wrong[f"{bad.kind.kind} {bad.text}"] = "it was created"
    return wrong


def _rows(page: str, head: str) -> Iterator[re.Match[str]]:
    text = (_DOCS / page).read_text("utf-8")
    table = text.partition(head)[2].partition("\n\n")[0]
    rows = list(_ROW.finditer(table))
    assert len(rows) == table.count("\n") - 1, "each row is an object and what is said of it"
    yield from rows
