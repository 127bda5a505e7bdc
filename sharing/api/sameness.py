"""One value for all equal JSON: thousands of manifests are often made by one template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import orjson

Value = TypeVar("Value")

_EXACTLY: Final = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
"""What JSON has, and nothing that would only be written as if it were."""


class Same(Generic[Value]):
    """Values by the JSON that they were made of; the oldest are forgotten first.

    Args:
        most: How many are remembered.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[bytes, Value] = {}

    def of(self, raw: object, make: Callable[[], Value]) -> Value:
        """The value of raw JSON: one that was made of the same, or a new one.

        Args:
            raw: The JSON. What is none is made anew each time.
            make: Makes the value; what it raises is passed on, and nothing is remembered.
        """
        try:
            text = orjson.dumps(raw, option=_EXACTLY)
        except TypeError:
            return make()
        known = self._values.get(text)
        if known is None:
            known = make()
            if len(self._values) >= self._most:
                del self._values[next(iter(self._values))]
            self._values[text] = known
        return known

    def __len__(self) -> int:
        return len(self._values)
