"""Health as a state machine: events and probes in, ailments out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.node.health import (
    Ailment,
    Finding,
    HealthPolicy,
    Probe,
    fell_ill,
    finding_of,
    is_ill,
    probed,
    quiet_s,
)
from sharing.nvml.codes import RecoveryAction
from sharing.nvml.observed import DriverEvent, EventKind

POLICY = HealthPolicy(quiet_s=30, probes=2, forget_after_s=1000)
FAULT = Finding(reason="Xid79", message="fell off the bus")
WELL = Probe(readable=True)


def xid(number: int) -> DriverEvent:
    return DriverEvent(kind=EventKind.XID, uuid="GPU-a", data=number)


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 109])
def test_an_application_fault_is_no_fault_of_the_device(number: int) -> None:
    assert finding_of(xid(number), POLICY) is None


@pytest.mark.parametrize("number", [48, 74, 79, 94, 119, 4711])
def test_any_other_xid_is_acted_on_and_named(number: int) -> None:
    finding = finding_of(xid(number), POLICY)

    assert finding is not None
    assert finding.reason == f"Xid{number}"


def test_a_fault_is_over_after_quiet_and_enough_probes() -> None:
    ill = fell_ill(None, FAULT, 0.0, POLICY)

    assert is_ill(probed(ill, WELL, 10.0, POLICY))
    first = probed(ill, WELL, 30.0, POLICY)
    assert is_ill(first)
    assert not is_ill(probed(first, WELL, 31.0, POLICY))


@pytest.mark.parametrize(
    "probe",
    [Probe(readable=False), Probe(readable=True, recovery_action=RecoveryAction.GPU_RESET)],
)
def test_a_failed_probe_starts_the_quiet_anew(probe: Probe) -> None:
    ill = probed(fell_ill(None, FAULT, 0.0, POLICY), WELL, 30.0, POLICY)

    again = probed(ill, probe, 31.0, POLICY)
    assert again.passed == 0
    assert is_ill(probed(probed(again, WELL, 60.0, POLICY), WELL, 60.5, POLICY))


def test_relapses_make_the_quiet_longer_up_to_a_cap_and_are_forgotten_in_time() -> None:
    ailment = fell_ill(None, FAULT, 0.0, POLICY)
    waits = []
    now = 0.0
    for _ in range(12):
        waits.append(quiet_s(ailment, POLICY))
        now += waits[-1]
        ailment = probed(probed(ailment, WELL, now, POLICY), WELL, now, POLICY)
        assert not is_ill(ailment)
        ailment = fell_ill(ailment, FAULT, now, POLICY)

    assert waits[:4] == [30, 60, 120, 240]
    assert waits[-1] == POLICY.longest_quiet_s
    over = probed(probed(ailment, WELL, now + 9999, POLICY), WELL, now + 9999, POLICY)
    assert fell_ill(over, FAULT, now + 99999, POLICY).relapses == 0


@given(
    st.builds(
        Ailment,
        reason=st.text(),
        message=st.text(),
        since=st.floats(0, 1e10),
        last=st.floats(0, 1e10),
        relapses=st.integers(0, 99),
        passed=st.integers(0, 9),
        over=st.none() | st.floats(0, 1e10),
    )
)
def test_an_ailment_survives_a_restart(ailment: Ailment) -> None:
    assert Ailment.from_json(ailment.to_json()) == ailment


@pytest.mark.parametrize("raw", [{}, {"reason": 1}])
def test_what_is_no_ailment_is_refused(raw: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no ailment"):
        Ailment.from_json(raw)
