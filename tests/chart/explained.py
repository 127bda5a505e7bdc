"""The chart's values as their file explains them, and the page that is made of it (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.chart import rendering

WHOLE: Final = ("resources", "updateStrategy", "issuerRef")
"""Values that are passed on as they are, so their keys are Kubernetes' own."""
PAGE: Final = rendering.CHART / "README.md"
_KEY: Final = re.compile(r"^( *)([A-Za-z]+):( .*)?$")
_SENTENCE: Final = re.compile(r"^ *# -- (.+)$")
_BEGIN: Final = "<!-- values: made from values.yaml -->\n"
_END: Final = "<!-- end of values -->\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One key that people set, by its whole path.

    Attributes:
        key: With dots.
        sentence: What stands above it; empty if nothing does.
    """

    key: str
    sentence: str

    @property
    def default(self) -> Any:
        """What it is if nobody sets it."""
        found: Any = rendering.values()
        for name in self.key.split("."):
            found = found[name]
        return found


def explained() -> Iterator[Value]:
    """The keys in the file's order; a key with a sentence hides the keys below it."""
    path: list[str] = []
    hidden_below: int | None = None
    lines = (rendering.CHART / "values.yaml").read_text("utf-8").splitlines()
    for above, line in zip(["", *lines], lines, strict=False):
        match = _KEY.match(line)
        if match is None:
            continue
        depth = len(match[1])
        if hidden_below is not None and depth > hidden_below:
            continue
        hidden_below = None
        path = [*path[: depth // 2], match[2]]
        sentence = _SENTENCE.match(above)
        if sentence or match[3]:
            hidden_below = depth
            yield Value(key=".".join(path), sentence=sentence[1] if sentence else "")


def page(text: str) -> str:
    """The page with its table made anew."""
    rows = ["| key | default | what |", "|---|---|---|"]
    for each in explained():
        default = json.dumps(each.default, ensure_ascii=False).replace("|", "\\|")
        rows.append(f"| `{each.key}` | `{default}` | {each.sentence.replace('|', chr(92) + '|')} |")
    head, _, rest = text.partition(_BEGIN)
    tail = rest.partition(_END)[2]
    return head + _BEGIN + "\n".join(rows) + "\n" + _END + tail
