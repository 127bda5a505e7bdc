"""Files that survive kills: written whole, read strictly, set aside when damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.api.node import GpuNodeSpec
from sharing.layout import GpuLayout
from sharing.mode import Mode
from sharing.node import record
from sharing.node.health import Ailment
from sharing.node.journal import Journal
from sharing.node.memory import Memory, recall
from sharing.node.record import RecordError
from sharing.node.retreat import Retreat
from sharing.node.step import SetMigMode, StartMps, StopMps
from sharing.size import OneOf

MPS = GpuLayout(mode=Mode.MPS, sizes=((OneOf(4), 4),))
STEPS = (StopMps(gpu="GPU-a", layout=MPS), SetMigMode(gpu="GPU-a", enabled=True))


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    record.write(tmp_path / "r", "kind", {"a": [1, "ä", None]})

    assert record.read(tmp_path / "r", "kind") == {"a": [1, "ä", None]}
    assert record.read(tmp_path / "absent", "kind") is None


@given(at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_record_with_any_byte_changed_is_refused_or_means_the_same(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int
) -> None:
    path = tmp_path_factory.mktemp("r") / "r"
    content = {"steps": ["one", "two"], "at": 1}
    record.write(path, "journal", content)
    raw = bytearray(path.read_bytes())
    raw[at % len(raw)] = byte
    path.write_bytes(bytes(raw))

    try:
        found = record.read(path, "journal")
    except RecordError:
        return
    assert found == content


@pytest.mark.parametrize("cut", [0, 1, 40, -1])
def test_a_record_that_was_cut_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "r"
    record.write(path, "kind", {"a": 1})
    path.write_bytes(path.read_bytes()[:cut])

    with pytest.raises(RecordError):
        record.read(path, "kind")


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"kind": "other"}, {"content": []}, {"checksum": ""}]
)
def test_a_record_of_another_version_or_kind_is_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "r"
    record.write(path, "kind", {"a": 1})
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), "utf-8")

    with pytest.raises(RecordError):
        record.read(path, "kind")


def test_a_writer_that_died_half_way_left_the_old_record(tmp_path: Path) -> None:
    record.write(tmp_path / "r", "kind", {"a": 1})
    (tmp_path / ".r.new").write_bytes(b'{"half')

    assert record.read(tmp_path / "r", "kind") == {"a": 1}
    record.write(tmp_path / "r", "kind", {"a": 2})
    assert record.read(tmp_path / "r", "kind") == {"a": 2}


def test_a_journal_says_which_step_was_interrupted(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", boot="one")
    journal.begin(STEPS)
    journal.starting(1)

    found = Journal(tmp_path / "j", boot="one").recover()
    assert found is not None
    assert found.steps == tuple(str(step) for step in STEPS)
    assert (found.at, found.rebooted) == (1, False)


def test_a_journal_of_another_boot_says_so(tmp_path: Path) -> None:
    """openshift/instaslice-operator took a count that differed for a reboot and deleted pods."""
    journal = Journal(tmp_path / "j", boot="one")
    journal.begin(STEPS)
    journal.starting(0)

    found = Journal(tmp_path / "j", boot="two").recover()
    assert found is not None
    assert found.rebooted


def test_a_finished_journal_says_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", boot="one")
    journal.begin(STEPS)
    journal.starting(0)
    journal.finish()
    journal.finish()

    assert journal.recover() is None


def test_an_unreadable_journal_is_set_aside_and_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b"\xff\x00garbage")
    journal = Journal(tmp_path / "j", boot="one")

    assert journal.recover() is None
    assert (tmp_path / "j.unreadable").read_bytes() == b"\xff\x00garbage"
    journal.begin(STEPS)
    journal.starting(0)
    assert journal.recover() is not None


def test_each_step_has_an_inverse_or_says_why_not() -> None:
    stop, switch = STEPS

    assert stop.inverse() == StartMps(gpu="GPU-a", layout=MPS)
    assert switch.inverse() == SetMigMode(gpu="GPU-a", enabled=False)


def test_a_memory_comes_back_as_it_was(tmp_path: Path) -> None:
    memory = Memory(
        wanted=GpuNodeSpec(),
        applied={"GPU-a": MPS},
        ailments={"GPU-a": Ailment(reason="Xid79", message="m", since=1.0, last=2.0)},
        retreats={"GPU-a": Retreat(layout=MPS, reason="no", until=3.5, times=2)},
    )
    memory.save(tmp_path / "m")

    assert recall(tmp_path / "m") == memory


def test_a_memory_of_another_release_is_forgotten_and_not_in_the_way(tmp_path: Path) -> None:
    record.write(tmp_path / "m", "memory", {"wanted": {"gpus": [{"odd": 1}]}, "applied": {}})

    assert recall(tmp_path / "m") == Memory()
