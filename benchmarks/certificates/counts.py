"""What the API server itself counted of its calls to the webhook.

Its counters begin anew with each life of it, so they are read again and again, and what the last
reading of a life said is added up.

Source: Kubernetes, metrics reference: ``apiserver_admission_webhook_rejection_count`` (an error of
calling, or no error: the webhook said no), ``…_fail_open_count``, ``…_request_total`` by HTTP code.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Final

from tests.cluster.access import Access, RefusedError

_LINE: Final = re.compile(
    r"^apiserver_admission_webhook_(rejection_count|fail_open_count|request_total)"
    r"\{([^}]*)\} (\S+)$",
    re.MULTILINE,
)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_OURS: Final = ".gpu.sharing"
_PERIOD_S: Final = 5.0
"""An API server needs some 50 ms of a processor to tell all that it counts."""


class ApiCounts:
    """The API server's counters over all its lives.

    Args:
        access: The API server.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._before: Counter[str] = Counter()
        self._life: Counter[str] = Counter()

    async def run(self) -> None:
        """Read again and again until cancelled."""
        while True:
            await self.read()
            await asyncio.sleep(_PERIOD_S)

    async def read(self) -> None:
        """Read once; an API server that is away is read next time."""
        try:
            text = (await asyncio.to_thread(self._access.call, "GET", "/metrics"))["text"]
        except (OSError, RefusedError):
            return
        seen = counted(text)
        if any(seen[key] < count for key, count in self._life.items()):
            self._before += self._life
        self._life = seen

    @property
    def total(self) -> Counter[str]:
        """All lives together, by what was counted."""
        return self._before + self._life


def counted(metrics: str) -> Counter[str]:
    """Calls of our webhooks by what became of them (pure)."""
    found: Counter[str] = Counter()
    for name, text, value in _LINE.findall(metrics):
        labels = dict(_LABEL.findall(text))
        if not labels.get("name", "").endswith(_OURS):
            continue
        match name:
            case "request_total":
                found[f"code {labels['code']}"] += int(float(value))
            case "rejection_count":
                found[f"rejected: {labels['error_type']}"] += int(float(value))
            case _:
                found["passed unseen"] += int(float(value))
    return found


def failures(total: Counter[str]) -> int:
    """Reviews that failed: rejections that the webhook did not ask for, and pods let through."""
    return sum(
        count
        for what, count in total.items()
        if what == "passed unseen"
        or (what.startswith("rejected: ") and not what.endswith("no_error"))
    )
