"""A local copy of one kind, listed once and kept fresh by a watch.

There is no polling: a list, then a watch from the list's resource version, resumed where
it ended, with bookmarks to keep that version young. When the server has forgotten it
(410), everything is listed again and what changed meanwhile is told as ordinary changes.
Objects pass through ``keep`` before they are stored, page by page, so that only what is
needed stays in memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, TypeVar

import structlog

from sharing.cluster.backoff import Backoff
from sharing.cluster.errors import ApiError, GoneError
from sharing.cluster.watching import EventType
from sharing.errors import GpuSharingError, UnavailableError

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from types import TracebackType

    from sharing.cluster.client import Client
    from sharing.cluster.kind import Kind

T = TypeVar("T")
Key: TypeAlias = tuple[str, str]
"""Namespace (empty for kinds without) and name."""

_log: Final = structlog.get_logger()
_STEADY_S: Final = 1.0
"""A watch that ends sooner is not resumed at once, lest we spin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[T]):
    """One change of the store.

    Attributes:
        key: Which object.
        old: What was kept of it before; None where it is new.
        new: What is kept of it now; None where it is gone.
    """

    key: Key
    old: T | None
    new: T | None


class Cache(Generic[T]):
    """A store of one kind; an async context manager that runs the watch inside.

    Args:
        client: The connection.
        kind: What to hold.
        keep: Makes the stored value from an object. It must not keep the object itself
            alive unless that is wanted. An object for which it raises a GpuSharingError
            is left out of the store, and a warning is logged.
        namespace: Only objects of this namespace.
        label_selector: Only objects with such labels.
        field_selector: Only objects with such fields.
        backoff: Waits between tries while the server is away.
        chance: Source of jitter.
    """

    def __init__(  # noqa: PLR0913 - selectors are what the API offers
        self,
        client: Client,
        kind: Kind,
        keep: Callable[[dict[str, Any]], T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        backoff: Backoff | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        """Set once the first list is complete; never cleared, see ``age_s``."""
        self.error: GpuSharingError | None = None
        """Why the server cannot be followed now; None while it can."""
        self._client = client
        self._keep = keep
        self._selection = {
            "namespace": namespace,
            "label_selector": label_selector,
            "field_selector": field_selector,
        }
        self._backoff = backoff or Backoff()
        self._chance = chance
        self._values: dict[Key, T] = {}
        self._versions: dict[Key, str] = {}
        self._version = ""
        self._contact = -float("inf")
        self._callbacks: dict[object, Callable[[Change[T]], None]] = {}
        self._task: asyncio.Task[None] | None = None

    # -- reading

    def get(self, name: str, *, namespace: str = "") -> T | None:
        """What is kept of one object; None if there is none."""
        return self._values.get((namespace, name))

    def items(self) -> tuple[tuple[Key, T], ...]:
        """All keys and values, in order of their keys."""
        return tuple(sorted(self._values.items(), key=lambda entry: entry[0]))

    def values(self) -> tuple[T, ...]:
        """All values, in order of their keys."""
        return tuple(value for _, value in self.items())

    def __len__(self) -> int:
        return len(self._values)

    def age_s(self) -> float:
        """Seconds since the server last showed that we are up to date; inf before sync.

        Lists, accepted watches, events and bookmarks count. A quiet server sends a
        bookmark about once a minute.
        """
        return time.monotonic() - self._contact

    async def wait_synced(self, *, timeout_s: float) -> None:
        """Return once the first list is complete.

        Raises:
            UnavailableError: If that takes longer; names the last error.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self.synced.wait()
        except TimeoutError:
            raise UnavailableError(
                f"list {self.kind}",
                f"not complete after {timeout_s:g} s"
                + (f": {self.error}" if self.error else "; the server did not answer yet"),
            ) from None

    # -- following

    def on_change(self, callback: Callable[[Change[T]], None]) -> Callable[[], None]:
        """Call back at each change, after the store has it, from the event loop.

        Returns:
            A function that ends it.
        """
        token = object()
        self._callbacks[token] = callback
        return lambda: self._callbacks.pop(token, None) and None

    @contextmanager
    def changes(self) -> Iterator[asyncio.Queue[Change[T]]]:
        """A queue that gets every change from now on, until the block ends."""
        queue: asyncio.Queue[Change[T]] = asyncio.Queue()
        stop = self.on_change(queue.put_nowait)
        try:
            yield queue
        finally:
            stop()

    async def until(self, accept: Callable[[Self], bool]) -> None:
        """Return as soon as ``accept`` says yes of this store; asked after each change."""
        with self.changes() as queue:
            while not accept(self):
                await queue.get()

    # -- running

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(), name=f"cache of {self.kind}")
        self._task.add_done_callback(self._ended)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        # Only a callback that fails ends it; ``age_s`` grows from here on.
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.error("cache ended", kind=str(self.kind), exc_info=fault)

    async def run(self) -> None:
        """Follow the server until cancelled. Failures are retried for ever, with backoff."""
        waits = self._backoff.waits(self._chance)
        while True:
            began = time.monotonic()
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except GoneError:
                # Ordinary after a long sleep or a restart of the server.
                self._version = ""
            except GpuSharingError as error:
                self._note(error)
            if self._contact >= began and time.monotonic() - began >= _STEADY_S:
                waits = self._backoff.waits(self._chance)
                if self.error is None:
                    continue
            await asyncio.sleep(next(waits))

    def _note(self, error: GpuSharingError) -> None:
        if self.error is None or str(self.error) != str(error):
            _log.warning("watch was interrupted", kind=str(self.kind), error=str(error))
        self.error = error

    def _in_contact(self) -> None:
        if self.error is not None:
            _log.info("watch goes on", kind=str(self.kind))
            self.error = None
        self._contact = time.monotonic()

    async def _list(self) -> None:
        values: dict[Key, T] = {}
        versions: dict[Key, str] = {}
        version = ""
        async for page in self._client.pages(self.kind, **self._selection):
            version = (page.get("metadata") or {}).get("resourceVersion") or version
            for item in page["items"]:
                key = _key(item)
                versions[key] = _version(item)
                if versions[key] == self._versions.get(key) and key in self._values:
                    values[key] = self._values[key]
                    continue
                with self._refusal(key):
                    values[key] = self._keep(item)
        if not version:
            raise ApiError(f"list {self.kind}", "the server named no resourceVersion")
        old_values, old_versions = self._values, self._versions
        self._values, self._versions, self._version = values, versions, version
        self._in_contact()
        self.synced.set()
        for key in sorted(old_values.keys() | values.keys()):
            if key in old_values and key in values and old_versions[key] == versions[key]:
                continue
            self._tell(Change(key=key, old=old_values.get(key), new=values.get(key)))

    async def _watch(self) -> None:
        stream = self._client.watch(self.kind, resource_version=self._version, **self._selection)
        async with aclosing(stream):
            async for event in stream:
                self._in_contact()
                if event.type is EventType.OPENED:
                    continue
                self._version = _version(event.item) or self._version
                if event.type is not EventType.BOOKMARK:
                    self._take(event.type, event.item)

    def _take(self, event_type: EventType, item: dict[str, Any]) -> None:
        key = _key(item)
        old = self._values.pop(key, None)
        self._versions.pop(key, None)
        if event_type is not EventType.DELETED:
            self._versions[key] = _version(item)
            with self._refusal(key):
                self._values[key] = self._keep(item)
        new = self._values.get(key)
        if old is not None or new is not None:
            self._tell(Change(key=key, old=old, new=new))

    @contextmanager
    def _refusal(self, key: Key) -> Iterator[None]:
        try:
            yield
        except GpuSharingError as error:
            namespace, name = key
            _log.warning(
                "object was left out",
                kind=str(self.kind),
                namespace=namespace,
                name=name,
                error=str(error),
            )
        except Exception:  # noqa: BLE001 - logged with its trace; see the next line
            # A fault of ours, met by one odd object, must not make us blind to the rest.
            _log.exception("object was left out by a fault", kind=str(self.kind), key=key)

    def _tell(self, change: Change[T]) -> None:
        for callback in tuple(self._callbacks.values()):
            callback(change)


def whole(item: dict[str, Any]) -> dict[str, Any]:
    """Keep an object as it is, without the field managers' records (often half of it)."""
    metadata = item.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return item


def _key(item: dict[str, Any]) -> Key:
    metadata = item.get("metadata") or {}
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _version(item: dict[str, Any]) -> str:
    return str((item.get("metadata") or {}).get("resourceVersion") or "")
