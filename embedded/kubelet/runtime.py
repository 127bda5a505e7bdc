"""The simulated container runtime: containers that outlive the kubelet that started them.

A real kubelet may restart while containers run on; so this is a thing of its own, given
to the kubelet from outside. What each container sees is also written to a file.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

import orjson

from embedded.kubelet.clock import timestamp
from embedded.kubelet.view import ContainerView

KILLED: Final = 137
"""Exit code of a process that was killed."""


class Phase(StrEnum):
    """Where a container is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container.

    Attributes:
        phase: Where it is in its life.
        reason: Why it waits or how it ended, one word.
        message: The same in a sentence.
        exit_code: How it ended.
        restarts: How often it was started again.
        started_at: When it was last started.
        finished_at: When it last ended.
        last: Its life before this one; None for the first.
    """

    phase: Phase = Phase.WAITING
    reason: str = "ContainerCreating"
    message: str = ""
    exit_code: int = 0
    restarts: int = 0
    started_at: str = ""
    finished_at: str = ""
    last: Container | None = None


@dataclass(slots=True)
class Runtime:
    """All containers of one node, by pod uid and name.

    Attributes:
        views: Folder for one JSON file a container.
    """

    views: Path
    _containers: dict[str, dict[str, Container]] = field(default_factory=dict)
    _seen: dict[tuple[str, str], ContainerView] = field(default_factory=dict)

    def get(self, uid: str, name: str) -> Container:
        """A container; one that waits where none was ever made."""
        return self._containers.get(uid, {}).get(name, Container())

    def of(self, uid: str) -> Mapping[str, Container]:
        """A pod's containers by name."""
        return dict(self._containers.get(uid, {}))

    def view(self, uid: str, name: str) -> ContainerView | None:
        """What a container saw when it was last started."""
        return self._seen.get((uid, name))

    def start(self, view: ContainerView) -> None:
        """Run a container."""
        before = self.get(view.uid, view.container)
        again = before.phase is Phase.EXITED or before.last is not None
        ended = before if before.phase is Phase.EXITED else before.last
        self._put(
            view.uid,
            view.container,
            Container(
                phase=Phase.RUNNING,
                reason="",
                restarts=before.restarts + 1 if again else 0,
                started_at=timestamp(),
                last=replace(ended, last=None) if ended else None,
            ),
        )
        self._seen[view.uid, view.container] = view
        folder = self.folder(view.namespace, view.pod, view.uid)
        folder.mkdir(parents=True, exist_ok=True)
        content = orjson.dumps(view.to_json(), option=orjson.OPT_INDENT_2)
        (folder / f"{view.container}.json").write_bytes(content)

    def wait(self, uid: str, name: str, *, reason: str, message: str) -> None:
        """Say why a container cannot start yet; how often it was restarted stays known."""
        before = self.get(uid, name)
        last = before if before.phase is Phase.EXITED else before.last
        self._put(
            uid,
            name,
            Container(reason=reason, message=message, restarts=before.restarts, last=last),
        )

    def finish(self, uid: str, name: str, exit_code: int) -> None:
        """End a container that runs."""
        before = self.get(uid, name)
        if before.phase is Phase.RUNNING:
            reason = "Error" if exit_code else "Completed"
            self._put(
                uid,
                name,
                replace(
                    before,
                    phase=Phase.EXITED,
                    reason=reason,
                    exit_code=exit_code,
                    finished_at=timestamp(),
                ),
            )

    def kill_all(self) -> None:
        """End every container, as a reboot does."""
        for uid, containers in self._containers.items():
            for name in tuple(containers):
                self.finish(uid, name, KILLED)

    def remove(self, namespace: str, pod: str, uid: str) -> None:
        """Forget a pod's containers and their files."""
        for name in self._containers.pop(uid, {}):
            self._seen.pop((uid, name), None)
        shutil.rmtree(self.folder(namespace, pod, uid), ignore_errors=True)

    def keep(self, uids: Collection[str]) -> None:
        """Forget the containers of all other pods, and their files."""
        for uid in [uid for uid in self._containers if uid not in uids]:
            for name in self._containers.pop(uid):
                self._seen.pop((uid, name), None)
        for folder in self.views.glob("*"):
            if folder.name.rpartition("_")[2] not in uids:
                shutil.rmtree(folder, ignore_errors=True)

    def folder(self, namespace: str, pod: str, uid: str) -> Path:
        """Where a pod's files are."""
        return self.views / f"{namespace}_{pod}_{uid}"

    def _put(self, uid: str, name: str, container: Container) -> None:
        self._containers.setdefault(uid, {})[name] = container
