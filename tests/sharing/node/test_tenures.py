"""Who held each share last: kept over a restart, forgotten with its GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharing.node.checkpoint import Entry
from sharing.node.tenures import Tenures
from sharing.node.usage import Seat

A = "GPU-a::0"
GPUS = {"GPU-a"}


def seat(uid: str) -> Seat:
    return Seat(device_id=A, pod_uid=uid, container="main")


def entry(uid: str) -> Entry:
    return Entry(pod_uid=uid, container="main", resource="r", device_ids=(A,))


def stamp(path: Path) -> int:
    return path.stat().st_mtime_ns


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tenures.json"


async def test_the_last_holder_is_known_after_a_restart_and_after_its_pods_end(path: Path) -> None:
    await Tenures(path).note([seat("one")], [], GPUS)

    again = Tenures(path)
    await again.note([], [], GPUS)
    assert again.former == {A: "one"}


async def test_the_next_holder_takes_its_place(path: Path) -> None:
    tenures = Tenures(path)
    for uid in ("one", "two"):
        await tenures.note([seat(uid)], [], GPUS)

    assert Tenures(path).former == {A: "two"}


async def test_the_kubelets_checkpoint_tells_of_pods_that_ended_before_our_time(path: Path) -> None:
    tenures = Tenures(path)
    await tenures.note([], [entry("ended")], GPUS)
    assert tenures.former == {A: "ended"}

    await tenures.note([seat("now")], [entry("ended")], GPUS)
    assert tenures.former == {A: "now"}


async def test_a_gpu_that_is_gone_is_forgotten(path: Path) -> None:
    tenures = Tenures(path)
    await tenures.note([seat("one")], [], GPUS)

    await tenures.note([], [], {"GPU-b"})
    assert tenures.former == {}


async def test_nothing_is_written_while_nothing_changes(path: Path) -> None:
    tenures = Tenures(path)
    await tenures.note([seat("one")], [], GPUS)
    written = stamp(path)

    await tenures.note([seat("one")], [], GPUS)
    assert stamp(path) == written


def test_a_torn_file_is_no_reason_to_stay_down(path: Path) -> None:
    path.write_text('{"version": 1, "ki')

    assert Tenures(path).former == {}
