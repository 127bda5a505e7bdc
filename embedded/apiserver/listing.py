"""Lists: one consistent snapshot, in chunks where the client wants them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from embedded.apiserver.kinds import ResourceKind
from embedded.apiserver.objects import Json
from embedded.apiserver.registry import in_version
from embedded.apiserver.requests import Continue, Request, expired_continue, parse_continue
from embedded.apiserver.status import (
    StatusError,
    field_forbidden,
    invalid_options,
    not_supported,
)
from embedded.apiserver.store import Store
from embedded.apiserver.watching import Wanted

_SNAPSHOTS: Final = 64


class Lister:
    """Answers list requests.

    A snapshot is a list of references to objects that never change, so it costs little.

    Args:
        store: Where objects live.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: OrderedDict[int, tuple[int, list[Json]]] = OrderedDict()
        self._next = 0

    def answer(self, request: Request) -> Json:
        """The list object.

        Raises:
            StatusError: 400, 410 or 504 (a revision from the future).
        """
        limit = request.number("limit") or 0
        token = request.query.get("continue", "")
        self._check_revision(request)
        if token:
            position = parse_continue(token)
            found = self._snapshots.get(position.snapshot)
            if found is None:
                raise expired_continue()
            revision, items = found
            return self._chunk(request.kind, revision, items, position, limit)
        items = self.select(request.kind, request.wanted())
        revision = self._store.revision
        position = Continue(-1, 0)
        if limit and limit < len(items):
            position = Continue(self._keep(revision, items), 0)
        return self._chunk(request.kind, revision, items, position, limit)

    def select(self, kind: ResourceKind, wanted: Wanted) -> list[Json]:
        """The objects that are wanted, in order."""
        everything = self._store.objects(kind.qualified, wanted.namespace)
        return [obj for obj in everything if wanted.takes(obj)]

    def forget(self) -> None:
        """Drop all snapshots, as a compaction does."""
        self._snapshots.clear()

    def _keep(self, revision: int, items: list[Json]) -> int:
        self._next += 1
        self._snapshots[self._next] = (revision, items)
        while len(self._snapshots) > _SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return self._next

    def _chunk(  # noqa: PLR0917 - one step of answer()
        self, kind: ResourceKind, revision: int, items: list[Json], at: Continue, limit: int
    ) -> Json:
        end = min(at.offset + limit, len(items)) if limit else len(items)
        metadata: Json = {"resourceVersion": str(revision)}
        if end < len(items):
            metadata["continue"] = Continue(at.snapshot, end).token()
            metadata["remainingItemCount"] = len(items) - end
        return {
            "kind": kind.list_kind,
            "apiVersion": kind.api_version,
            "metadata": metadata,
            "items": [in_version(obj, kind) for obj in items[at.offset : end]],
        }

    def _check_revision(self, request: Request) -> None:
        revision = request.revision()
        match, field = request.query.get("resourceVersionMatch", ""), "resourceVersionMatch"
        wrong = None
        if match not in {"", "NotOlderThan", "Exact"}:
            wrong = not_supported(field, match, ("Exact", "NotOlderThan", ""))
        elif match and revision is None:
            wrong = field_forbidden(
                field, f"{field} is forbidden unless resourceVersion is provided"
            )
        elif match == "Exact" and revision == 0:
            wrong = field_forbidden(field, f'{field} "exact" is forbidden for resourceVersion "0"')
        if wrong is not None:
            raise invalid_options("ListOptions", wrong)
        if revision is not None and revision > self._store.revision:
            raise too_large_revision(revision, self._store.revision)


def too_large_revision(wanted: int, current: int) -> StatusError:
    """The client has seen a revision that this server has not."""
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ]
        },
        retry_after_s=1,
    )
