"""The driver's list of MPS clients against the daemon's own: what differs, and from when on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sharing.node.clientlists import ClientLists, Disputed, Known, disputed
from sharing.node.news import news
from sharing.node.status import NodeReport
from sharing.node.usage import Accounts

LASTING_S = 45.0
PIDS = st.frozensets(st.integers(1, 9))


def lists(driver: set[int], daemon: set[int], device: str = "GPU-a") -> ClientLists:
    return ClientLists(device=device, driver=frozenset(driver), daemon=frozenset(daemon))


def test_lists_that_agree_dispute_nothing() -> None:
    assert disputed((), [lists({4, 5}, {5, 4})], now=0.0, lasting_s=LASTING_S) == ()


def test_a_difference_counts_once_it_has_lasted() -> None:
    first = disputed((), [lists({4}, set())], now=100.0, lasting_s=LASTING_S)
    assert first == (Disputed(device="GPU-a", pid=4, known=Known.DRIVER, since=100.0),)

    again = disputed(first, [lists({4}, set())], now=130.0, lasting_s=LASTING_S)
    assert [(one.since, one.lasting) for one in again] == [(100.0, False)]

    (lasting,) = disputed(again, [lists({4}, set())], now=160.0, lasting_s=LASTING_S)
    assert lasting.lasting


def test_clients_that_come_and_go_are_never_disputed_for_long() -> None:
    known: tuple[Disputed, ...] = ()
    for turn in range(20):
        known = disputed(known, [lists({turn}, {turn + 1})], now=30.0 * turn, lasting_s=LASTING_S)

        assert not any(one.lasting for one in known)


def test_one_that_changes_sides_begins_anew() -> None:
    before = disputed((), [lists({4}, set())], now=0.0, lasting_s=LASTING_S)

    (now,) = disputed(before, [lists(set(), {4})], now=500.0, lasting_s=LASTING_S)
    assert (now.known, now.since, now.lasting) == (Known.DAEMON, 500.0, False)


def test_a_device_that_was_not_asked_is_not_judged() -> None:
    before = disputed(
        (), [lists({4}, set()), lists({4}, set(), "GPU-b")], now=0.0, lasting_s=LASTING_S
    )

    after = disputed(before, [lists({4}, set(), "GPU-b")], now=90.0, lasting_s=LASTING_S)
    assert [(one.device, one.lasting) for one in after] == [("GPU-b", True)]


@given(PIDS, PIDS)
def test_each_process_that_one_list_names_alone_is_told_once(
    driver: frozenset[int], daemon: frozenset[int]
) -> None:
    found = disputed(
        (),
        [ClientLists(device="GPU-a", driver=driver, daemon=daemon)],
        now=0.0,
        lasting_s=LASTING_S,
    )

    assert {one.pid for one in found if one.known is Known.DRIVER} == driver - daemon
    assert {one.pid for one in found if one.known is Known.DAEMON} == daemon - driver
    assert len(found) == len(driver ^ daemon)


def test_clients_that_no_daemon_of_ours_knows_are_an_event_once() -> None:
    def report(*found: Disputed) -> NodeReport:
        return NodeReport(accounts=Accounts(disputed=found))

    def one(pid: int, known: Known = Known.DRIVER, *, lasting: bool = True) -> Disputed:
        return Disputed(device="GPU-a", pid=pid, known=known, since=0.0, lasting=lasting)

    (told,) = news(report(), report(one(4), one(5), one(6, Known.DAEMON), one(7, lasting=False)))
    assert (told.reason, told.warning) == ("MpsClientsDisputed", True)
    assert "processes that use GPU-a through MPS are no clients of its daemon" in told.message
    assert ": 4, 5; end the other MPS daemon" in told.message
    assert news(report(one(4), one(5)), report(one(4))) == ()
    (again,) = news(report(one(4)), report(one(4), one(8)))
    assert ": 8; " in again.message
