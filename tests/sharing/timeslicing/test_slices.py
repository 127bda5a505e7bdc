"""Time slices by the real protocol of the command: set, read back, given back after anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from sharing.timeslice import TimeSlice
from sharing.timeslicing.errors import TimeSliceError
from sharing.timeslicing.policy import ComputePolicy, stand_in
from sharing.timeslicing.slices import TimeSlices

GPU, OTHER = "GPU-11111111-aaaa", "GPU-22222222-bbbb"


class Bench:
    """The command's stand-in, and agents that come and go."""

    def __init__(self, folder: Path) -> None:
        self.faults = folder / "faults"
        self.policy = stand_in(folder / "gpus", self.faults)
        self.record = folder / "state" / "timeslices.json"
        self.slices = self.agent()

    def agent(self, policy: ComputePolicy | None = None) -> TimeSlices:
        return TimeSlices(policy or self.policy, self.record, retry_s=0.0)

    async def is_(self, uuid: str = GPU) -> TimeSlice:
        self.faults.unlink(missing_ok=True)
        return await self.policy.get(uuid)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_a_slice_is_set_and_given_back_as_it_was_found(bench: Bench) -> None:
    await bench.policy.set(GPU, TimeSlice.SHORT)

    await bench.slices.apply({GPU: TimeSlice.LONG})
    assert (await bench.is_(), await bench.is_(OTHER)) == (TimeSlice.LONG, TimeSlice.DEFAULT)
    await bench.slices.apply({})
    assert await bench.is_() is TimeSlice.SHORT


async def test_a_second_change_does_not_forget_what_was_found_first(bench: Bench) -> None:
    await bench.policy.set(GPU, TimeSlice.MEDIUM)
    for value in (TimeSlice.LONG, TimeSlice.SHORT):
        await bench.slices.apply({GPU: value})
        assert await bench.is_() is value

    await bench.slices.apply({})
    assert await bench.is_() is TimeSlice.MEDIUM


async def test_the_next_agent_gives_back_what_one_that_died_had_changed(bench: Bench) -> None:
    await bench.slices.apply({GPU: TimeSlice.LONG, OTHER: TimeSlice.SHORT})

    await bench.agent().apply({OTHER: TimeSlice.SHORT})
    assert await bench.is_(GPU) is TimeSlice.DEFAULT
    assert await bench.is_(OTHER) is TimeSlice.SHORT


async def test_a_gpu_that_is_not_ours_is_never_touched(bench: Bench) -> None:
    await bench.policy.set(OTHER, TimeSlice.LONG)

    await bench.slices.apply({GPU: TimeSlice.SHORT})
    await bench.slices.apply({})
    assert await bench.is_(OTHER) is TimeSlice.LONG


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("refuse", "Insufficient Permissions"),
        ("forget", "is default after it was set"),
        ("mumble", "was not understood"),
    ],
)
async def test_a_driver_that_refuses_is_told_of_and_asked_again(
    bench: Bench, fault: str, said: str
) -> None:
    bench.faults.write_text(fault)
    await bench.slices.apply({GPU: TimeSlice.LONG})
    assert said in bench.slices.failures[GPU]

    bench.faults.unlink()
    await bench.slices.apply({GPU: TimeSlice.LONG})
    assert bench.slices.failures == {}
    assert await bench.is_() is TimeSlice.LONG


async def test_a_refusal_is_not_asked_again_at_once_but_another_wish_is(bench: Bench) -> None:
    patient = TimeSlices(bench.policy, bench.record, retry_s=3600.0)
    bench.faults.write_text("refuse")
    await patient.apply({GPU: TimeSlice.LONG})
    bench.faults.unlink()

    await patient.apply({GPU: TimeSlice.LONG})
    assert "Insufficient Permissions" in patient.failures[GPU]
    await patient.apply({GPU: TimeSlice.SHORT})
    assert (patient.failures, await bench.is_()) == ({}, TimeSlice.SHORT)


async def test_a_command_that_hangs_or_is_not_there_is_a_sentence(bench: Bench) -> None:
    bench.faults.write_text("hang")
    hasty = ComputePolicy(argv=bench.policy.argv, env=bench.policy.env, timeout_s=0.3)
    with pytest.raises(TimeSliceError, match=r"no answer within 0\.3 s"):
        await hasty.get(GPU)
    with pytest.raises(TimeSliceError, match="cannot be run"):
        await ComputePolicy(argv=("/no/such/nvidia-smi",)).get(GPU)
    with pytest.raises(TimeSliceError, match="has no UUID"):
        await bench.policy.get("0; reboot")


async def test_a_record_of_nonsense_is_passed_over(bench: Bench) -> None:
    bench.record.parent.mkdir()
    bench.record.write_text('{"GPU-1": "for ever"}')

    await bench.slices.apply({GPU: TimeSlice.LONG})
    assert await bench.is_() is TimeSlice.LONG


async def test_nothing_is_asked_while_nothing_changes(bench: Bench) -> None:
    await bench.slices.apply({GPU: TimeSlice.LONG})
    bench.faults.write_text("hang")

    await bench.slices.apply({GPU: TimeSlice.LONG})
    assert bench.slices.failures == {}
