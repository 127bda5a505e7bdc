"""Health as a state machine: signs and probes in, states out; the table is data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.errors import InputError
from sharing.node.finding import Finding, finding_of, recovery_of
from sharing.node.health import (
    Ailment,
    HealthPolicy,
    Probe,
    State,
    after_probe,
    after_sign,
    is_ill,
    quiet_s,
    state_of,
)
from sharing.node.xid import (
    ADVICE,
    Action,
    Reaction,
    Rule,
    Sign,
    shipped_table,
)
from sharing.node.xidfile import read_table
from sharing.nvml.codes import RecoveryAction
from sharing.nvml.observed import DriverEvent, EventKind

POLICY = HealthPolicy(quiet_s=30, probes=2, forget_after_s=1000, flap_limit=7, flap_quiet_s=5000)
ACT = Rule(reaction=Reaction.ACT, action=Action.RESET_GPU)
COUNT = Rule(reaction=Reaction.COUNT, limit=3, window_s=60, action=Action.RESTART_APP)
FAULT = Finding(reason="Xid119", message="GSP RPC time-out", rule=ACT, xid=119)
COUNTED = Finding(reason="Xid94", message="contained memory error", rule=COUNT, xid=94)
WELL = Probe(readable=True)


def xid(number: int) -> DriverEvent:
    return DriverEvent(kind=EventKind.XID, uuid="GPU-a", data=number)


def probed(ailment: Ailment, probe: Probe, now: float) -> Ailment:
    after = after_probe(ailment, probe, now, POLICY)
    assert after is not None
    return after


# The table


@pytest.mark.parametrize("number", [8, 11, 13, 25, 31, 32, 43, 44, 45, 68, 69, 137, 154, 171, 172])
def test_an_application_fault_is_no_fault_of_the_device(number: int) -> None:
    assert finding_of(xid(number), POLICY.table) is None


@pytest.mark.parametrize(
    ("number", "reaction", "action"),
    [
        (46, "act", "RESET_GPU"),
        (48, "act", "WORKFLOW_XID_48"),
        (63, "count", "IGNORE"),
        (64, "act", "RESET_GPU"),
        (74, "act", "WORKFLOW_NVLINK_ERR"),
        (79, "act", "RESTART_BM"),
        (92, "suspect", "IGNORE"),
        (94, "count", "RESTART_APP"),
        (95, "act", "RESET_GPU"),
        (109, "count", "RESET_GPU"),
        (119, "act", "RESET_GPU"),
        (120, "act", "RESET_GPU"),
        (140, "act", "RESET_GPU"),
        (149, "act", "WORKFLOW_NVLINK5_ERR"),
        (151, "act", "RESTART_VM"),
        (997, "act", "CONTACT_SUPPORT"),
    ],
)
def test_the_catalogues_action_and_our_reaction_stand_in_the_table(
    number: int, reaction: str, action: str
) -> None:
    finding = finding_of(xid(number), POLICY.table)

    assert finding is not None
    assert (finding.reason, finding.xid) == (f"Xid{number}", number)
    assert (str(finding.rule.reaction), str(finding.rule.action)) == (reaction, action)


def test_every_sign_has_a_line_and_every_action_that_needs_a_person_an_advice() -> None:
    table = shipped_table()

    assert set(table.signs) == set(Sign)
    quiet = {Action.NONE, Action.IGNORE}
    assert {*Action} - quiet == set(ADVICE)
    assert {rule.action for rule in table.xids.values()} <= {*ADVICE, *quiet}


def test_the_policys_times_are_those_of_the_table() -> None:
    assert HealthPolicy.of(shipped_table()) == HealthPolicy()


def test_an_operators_file_replaces_single_lines(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(
        "[health]\nquiet_s = 5\n[xids]\n"
        '94 = { reaction = "act", action = "RESET_GPU" }\n'
        '79 = { reaction = "ignore" }\n[signs]\nOverheated = { reaction = "suspect" }\n'
    )
    policy = HealthPolicy.of(read_table(path))

    found = finding_of(xid(94), policy.table)
    assert found is not None
    assert found.rule.reaction is Reaction.ACT
    assert finding_of(xid(79), policy.table) is None
    assert finding_of(xid(48), policy.table) == finding_of(xid(48), POLICY.table)
    assert policy.table.signs[Sign.OVERHEATED].reaction is Reaction.SUSPECT
    assert (policy.quiet_s, policy.probes) == (5, 2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[xids", "is no TOML"),
        ('[xids]\n94 = { reaction = "shrug" }', "xids.94.reaction"),
        ('[xids]\n94 = { reaction = "count" }', "limit of 1 or more"),
        ('[xids]\nfour = { reaction = "act" }', "xids.four"),
        ('[xids]\n94 = { reaction = "act", surprise = 1 }', "unknown field xids.94.surprise"),
        ('[signs]\nSad = { reaction = "act" }', "signs.Sad"),
        ("[health]\nprobes = 0", "probes"),
        ("[health]\npatience = 3", "patience"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_its_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)

    with pytest.raises(InputError, match=r"policy\.toml") as caught:
        read_table(path)
    assert told in str(caught.value)


def test_a_file_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_table(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("kind", "data", "reason", "action"),
    [
        (EventKind.LOST, 0, "GpuLost", None),
        (EventKind.UNAVAILABLE, 0, "GpuUnavailable", None),
        (EventKind.RECOVERY_ACTION, 2, "RecoveryAction", Action.RESTART_BM),
        (EventKind.RECOVERY_ACTION, 77, "RecoveryAction", Action.CONTACT_SUPPORT),
    ],
)
def test_events_without_a_number_are_told_by_name(
    kind: EventKind, data: int, reason: str, action: Action | None
) -> None:
    finding = finding_of(DriverEvent(kind=kind, uuid="GPU-a", data=data), POLICY.table)

    assert finding is not None
    assert (finding.reason, finding.action) == (reason, action)


@pytest.mark.parametrize(
    ("kind", "data"),
    [(EventKind.RECOVERY_ACTION, 0), (EventKind.MIG_CONFIG, 0), (EventKind.ECC, 1)],
)
def test_other_events_are_no_signs(kind: EventKind, data: int) -> None:
    assert finding_of(DriverEvent(kind=kind, uuid="GPU-a", data=data), POLICY.table) is None


# The states


def test_a_fault_is_over_after_quiet_and_enough_probes() -> None:
    ill = after_sign(None, FAULT, 0.0, POLICY)
    assert ill.state is State.UNHEALTHY

    assert probed(ill, WELL, 10.0).state is State.UNHEALTHY
    first = probed(ill, WELL, 30.0)
    assert (first.state, is_ill(first)) == (State.PROBING, True)
    well = probed(first, WELL, 31.0)
    assert (well.state, is_ill(well)) == (State.RECOVERED, False)


def test_a_clock_that_was_set_back_prolongs_no_illness() -> None:
    ill = after_sign(None, FAULT, 100_000.0, POLICY)

    seen = probed(ill, WELL, 10.0)
    assert (seen.state, seen.last) == (State.UNHEALTHY, 10.0)
    well = probed(probed(seen, WELL, 40.0), WELL, 41.0)
    assert well.state is State.RECOVERED


def test_signs_from_before_a_clock_was_set_back_are_not_counted() -> None:
    ailment = None
    for now in (100_000.0, 100_001.0, 10.0, 11.0):
        ailment = after_sign(ailment, COUNTED, now, POLICY)
    assert state_of(ailment) is State.SUSPECT


@pytest.mark.parametrize(
    "probe",
    [
        Probe(readable=False),
        Probe(readable=True, recovery_action=RecoveryAction.GPU_RESET),
        Probe(readable=True, well=False),
    ],
)
def test_a_failed_probe_starts_the_quiet_anew(probe: Probe) -> None:
    ill = probed(after_sign(None, FAULT, 0.0, POLICY), WELL, 30.0)

    again = probed(ill, probe, 31.0)
    assert (again.state, again.passed) == (State.UNHEALTHY, 0)
    assert is_ill(probed(probed(again, WELL, 60.0), WELL, 60.5))


def test_counted_signs_make_a_suspect_and_too_many_within_the_window_a_patient() -> None:
    ailment = None
    states = []
    for now in (0.0, 10.0, 80.0, 90.0, 100.0):  # the first two are too old by the third
        ailment = after_sign(ailment, COUNTED, now, POLICY)
        states.append(ailment.state)

    assert states == [State.SUSPECT] * 4 + [State.UNHEALTHY]
    assert ailment is not None
    assert "3 of 3 within 60 s" in ailment.message


def test_signs_of_different_kinds_are_counted_apart() -> None:
    other = replace(COUNTED, reason="Xid109", xid=109)
    ailment = None
    for finding in (COUNTED, other, COUNTED, other):
        ailment = after_sign(ailment, finding, 1.0, POLICY)
    assert state_of(ailment) is State.SUSPECT


def test_a_suspect_is_healthy_again_when_its_time_is_up() -> None:
    suspect = after_sign(None, COUNTED, 0.0, POLICY)

    assert state_of(after_probe(suspect, WELL, 59.0, POLICY)) is State.SUSPECT
    assert after_probe(suspect, WELL, 60.0, POLICY) is None


def test_a_suspect_that_was_ill_before_stays_known_for_relapses() -> None:
    ill = after_sign(None, FAULT, 0.0, POLICY)
    well = probed(probed(ill, WELL, 30.0), WELL, 31.0)
    suspect = after_sign(well, COUNTED, 40.0, POLICY)
    settled = probed(suspect, WELL, 200.0)

    assert (suspect.state, settled.state) == (State.SUSPECT, State.RECOVERED)
    assert after_sign(settled, FAULT, 210.0, POLICY).relapses == 1


def test_a_mild_sign_neither_heals_nor_prolongs_an_illness() -> None:
    ill = after_sign(None, FAULT, 0.0, POLICY)
    after = after_sign(ill, COUNTED, 20.0, POLICY)

    assert (after.reason, after.last, after.state) == ("Xid119", 0.0, State.UNHEALTHY)


def test_the_sign_that_asks_most_is_the_one_that_is_told() -> None:
    gone = Finding(
        reason="Xid79",
        message="fell off the bus",
        xid=79,
        rule=Rule(reaction=Reaction.ACT, action=Action.RESTART_BM),
    )
    ill = after_sign(after_sign(None, FAULT, 0.0, POLICY), gone, 5.0, POLICY)
    assert (ill.reason, ill.xid, ill.action, ill.since) == ("Xid79", 79, Action.RESTART_BM, 0.0)

    later = after_sign(ill, FAULT, 9.0, POLICY)
    assert (later.reason, later.last) == ("Xid79", 9.0)


AWAY = Finding(
    reason=Sign.DRIVER_UNAVAILABLE, message="driver not loaded", steady=True,
    rule=Rule(reaction=Reaction.ACT, action=Action.UPDATE_SWFW),
)  # fmt: skip


def test_a_driver_that_was_away_is_no_fault_once_it_reads_the_device_again() -> None:
    ailment = after_sign(after_sign(None, AWAY, 0.0, POLICY), AWAY, 5.0, POLICY)
    assert is_ill(ailment)
    assert is_ill(probed(ailment, Probe(readable=False), 5.1))

    assert probed(ailment, WELL, 5.2).state is State.RECOVERED


def test_a_driver_that_goes_away_again_and_again_takes_the_device_out_for_long() -> None:
    ailment = after_sign(None, AWAY, 0.0, POLICY)
    for now in range(1, POLICY.flap_limit + 1):
        ailment = after_sign(probed(ailment, WELL, now), AWAY, now, POLICY)

    assert is_ill(probed(ailment, WELL, 100.0))


@pytest.mark.parametrize("signs", [(FAULT, AWAY), (AWAY, FAULT), (AWAY, FAULT, AWAY)])
def test_a_driver_that_was_away_hides_no_fault(signs: tuple[Finding, ...]) -> None:
    ailment = None
    for finding in signs:
        ailment = after_sign(ailment, finding, 0.0, POLICY)
    assert ailment is not None
    assert ailment.reason == "Xid119"

    assert is_ill(probed(ailment, WELL, 29.0))


def test_the_drivers_recommendation_about_an_xid_changes_the_action_and_keeps_the_xid() -> None:
    told = finding_of(xid(48), POLICY.table)
    recommended = recovery_of(int(RecoveryAction.NODE_REBOOT), POLICY.table)
    assert told is not None
    assert recommended is not None
    ill = after_sign(after_sign(None, told, 0.0, POLICY), recommended, 0.1, POLICY)

    assert (ill.reason, ill.xid, ill.action) == ("Xid48", 48, Action.RESTART_BM)


def test_relapses_make_the_quiet_longer_up_to_a_cap_and_flapping_takes_it_out_for_long() -> None:
    ailment = after_sign(None, FAULT, 0.0, POLICY)
    waits = []
    now = 0.0
    for _ in range(9):
        waits.append(quiet_s(ailment, POLICY))
        now += waits[-1]
        ailment = probed(probed(ailment, WELL, now), WELL, now)
        assert ailment.state is State.RECOVERED
        ailment = after_sign(ailment, FAULT, now, POLICY)

    assert waits == [30, 60, 120, 240, 480, 960, 1920, 5000, 5000]


def test_what_is_long_over_is_forgotten() -> None:
    ill = after_sign(None, FAULT, 0.0, POLICY)
    over = probed(probed(ill, WELL, 30.0), WELL, 30.0)

    assert after_probe(over, WELL, 1000.0, POLICY) == over
    assert after_probe(over, WELL, 1031.0, POLICY) is None
    assert after_sign(over, FAULT, 1031.0, POLICY).relapses == 0


STEPS = st.lists(
    st.tuples(st.floats(0.1, 400), st.sampled_from(["act", "count", "well", "bad"])), max_size=60
)


@given(STEPS)
def test_in_any_history_work_is_taken_only_after_quiet_and_probes(
    steps: list[tuple[float, str]],
) -> None:
    ailment: Ailment | None = None
    now, last_bad, passed = 0.0, None, 0
    for pause, what in steps:
        now += pause
        before = state_of(ailment)
        if what in {"act", "count"}:
            ailment = after_sign(ailment, FAULT if what == "act" else COUNTED, now, POLICY)
            if what == "act":
                assert ailment.state is State.UNHEALTHY
                last_bad, passed = now, 0
        elif ailment is not None:
            probe = WELL if what == "well" else Probe(readable=False)
            ailment = after_probe(ailment, probe, now, POLICY)
            if what == "bad" and not before.takes_work:
                last_bad, passed = now, 0
            elif what == "well":
                passed += 1
        if not before.takes_work and state_of(ailment).takes_work:
            assert what == "well"
            assert passed >= POLICY.probes
            assert last_bad is None or now - last_bad >= POLICY.quiet_s


@given(
    st.builds(
        Ailment,
        state=st.sampled_from([state for state in State if state is not State.HEALTHY]),
        reason=st.text(),
        message=st.text(),
        xid=st.none() | st.integers(1, 999),
        action=st.sampled_from(Action),
        since=st.floats(0, 1e10),
        last=st.floats(0, 1e10),
        relapses=st.integers(0, 99),
        passed=st.integers(0, 9),
        over=st.none() | st.floats(0, 1e10),
        until=st.floats(0, 1e10),
        signs=st.lists(st.tuples(st.text(), st.floats(0, 1e10)), max_size=4).map(tuple),
    )
)
def test_an_ailment_survives_a_restart(ailment: Ailment) -> None:
    assert Ailment.from_json(ailment.to_json()) == ailment


def test_an_ailment_of_an_older_agent_is_understood() -> None:
    old = {"reason": "Xid79", "message": "m", "since": 1, "last": 2, "relapses": 0, "passed": 0}

    assert Ailment.from_json({**old, "over": None}).state is State.UNHEALTHY
    assert Ailment.from_json({**old, "over": 3}).state is State.RECOVERED


@pytest.mark.parametrize("raw", [{}, {"reason": 1}, {"reason": "a", "over": None, "state": "sad"}])
def test_what_is_no_ailment_is_refused(raw: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"no ailment|State"):
        Ailment.from_json(raw)
