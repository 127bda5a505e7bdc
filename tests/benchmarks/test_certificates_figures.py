"""The certificate benchmark's arithmetic, and its clock that jumps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from benchmarks.certificates.campaign import FULL, QUICK, Phase
from benchmarks.certificates.counts import counted, failures
from benchmarks.certificates.cpu import per_review_ms, used
from benchmarks.certificates.figures import EMPTIED, figures
from benchmarks.certificates.kills import POINTS, STEPS
from benchmarks.certificates.load import Seen
from benchmarks.certificates.observer import untrusted
from benchmarks.certificates.scene import Ended
from benchmarks.certificates.times import ASKED, BRIEF, SHORT_LIVED, UNHURRIED, Times
from benchmarks.certificates.verdict import explained, faults
from benchmarks.certificates.wallclock import WallClock, compiler
from certs.start import fresh_identity
from certs.step import WRITING

METRICS = """\
# TYPE apiserver_admission_webhook_request_total counter
apiserver_admission_webhook_request_total{code="200",name="pods.gpu.sharing",operation="CREATE",rejected="false",type="admit"} 40
apiserver_admission_webhook_request_total{code="200",name="workloads.gpu.sharing",operation="CREATE",rejected="false",type="admit"} 2
apiserver_admission_webhook_request_total{code="200",name="pods.example.test",operation="CREATE",rejected="false",type="admit"} 9
apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="pods.gpu.sharing",operation="CREATE",rejection_code="0",type="admit"} 3
apiserver_admission_webhook_rejection_count{error_type="no_error",name="pods.gpu.sharing",operation="CREATE",rejection_code="403",type="admit"} 5
apiserver_admission_webhook_fail_open_count{name="pods.gpu.sharing",type="admit"} 1
"""  # noqa: E501 - as the API server writes it


def phase(name: str, *, failed: int = 0, reviews: int = 100) -> Phase:
    calls = Counter({"code 200": reviews, "rejected: calling_webhook_error": failed})
    seen = Seen(created=reviews, times_s=[0.001 * number for number in range(1, reviews + 1)])
    extra = {"longest_ms": 7.5} if name == EMPTIED else {}
    return Phase(name=name, replicas=2, took_s=10.0, seen=seen, counted=calls, extra=extra)


def test_only_our_webhooks_count_and_a_no_is_no_failure() -> None:
    total = counted(METRICS)

    assert total["code 200"] == 42
    assert failures(total) == 4


def test_what_failed_while_others_emptied_the_bundle_is_told_apart() -> None:
    ends = [Ended(name="a", status=0, took_s=94.0), Ended(name="b", status=1, took_s=3.0)]

    found = figures([phase("rotations"), phase(EMPTIED, failed=3)], ends, rotations=20)

    assert (found["reviews"], found["reviews_per_s"], found["rotations"]) == (200, 10.0, 20)
    assert (found["failed_reviews"], found["failed_while_emptied"]) == (0, 3)
    assert (found["restarts"], found["unclean_ends"], found["drain_longest_s"]) == (2, 1, 94.0)
    assert (found["create_p50_ms"], found["emptied_longest_ms"]) == (51.0, 7.5)


def test_a_full_campaign_is_what_is_promised() -> None:
    assert FULL.rotations >= 20
    assert 2 * FULL.rolls >= 10
    assert FULL.all_rotations >= 50
    assert FULL.rate >= 200
    assert FULL.least_rate >= 200
    assert FULL.kill_counts == (2, 1)
    assert set(QUICK.kill_points) <= set(FULL.kill_points)


def test_a_replica_is_killed_before_and_after_each_step_that_writes() -> None:
    writes = {(kind.__name__, act) for kind in WRITING for act in kind.ACTS}

    assert {(kind.__name__, act) for kind, act in STEPS} == writes
    assert FULL.kill_points == tuple(POINTS)
    assert len(POINTS) == 2 * len(writes) == 14


def test_a_campaign_names_what_it_did_not_show() -> None:
    found = figures(
        [phase("rotations", reviews=2300)], [], rotations=60, kills=28, max_authorities=3,
        untrusted_handshakes=0, handshakes_observed=9,
    )  # fmt: skip
    assert faults(found, FULL) == []

    found |= figures([phase("rotations", failed=1), phase("etcd restarts")], [])
    found |= {"kills": 27, "rotations": 49}

    assert faults(found, FULL) == [
        "reviews failed",
        "fewer than 200 reviews a second",
        "fewer than 50 rotations",
        "not every kill was made",
    ]


def test_costs_are_told_by_program_and_leave_out_restarts() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    steady = replace(phase("rotations"), ticks=Counter({"etcd": ticks // 10, "callers": ticks}))
    away = replace(phase("etcd restarts"), extra={"away_s": 1.0}, ticks=Counter({"etcd": 99}))
    began = used({"own": os.getpid(), "gone": 2**30})

    assert per_review_ms([steady, away]) == {"callers": 10.0, "etcd": 1.0}
    assert began["own"] > 0
    assert began["gone"] == 0


def test_what_is_shown_has_to_be_trusted_before_and_after() -> None:
    now = datetime.now(UTC)
    own, other = (fresh_identity(["a.b.svc"], now) for _ in range(2))
    leaf = x509.load_pem_x509_certificate(own.leaf_pem)
    trusting, strange = ([x509.load_pem_x509_certificate(one.ca_pem)] for one in (own, other))

    assert untrusted(leaf, [trusting], [trusting + strange]) == []
    assert untrusted(leaf, [[]], [trusting]) == []
    assert untrusted(leaf, [strange], [trusting]) == [
        "which a bundle of 1 did not trust just before"
    ]
    assert untrusted(leaf, [trusting, trusting], [trusting, []]) == [
        "which a bundle of 0 did not trust just after"
    ]


def test_rates_leave_out_the_time_without_an_api_server() -> None:
    away = replace(phase("API server restarts"), extra={"away_s": 6.0})

    assert figures([away], [])["phases"][0]["reviews_per_s"] == 25.0


def test_a_failure_is_told_with_what_changed_just_before() -> None:
    changes = [(1.0, "trusted: a"), (4.0, "trusted: a b"), (5.5, "one serves one of: b")]

    told = explained([(5.0, "unknown authority")], changes)

    assert told == [
        {
            "why": "unknown authority",
            "after": ["4.00 s after trusted: a", "1.00 s after trusted: a b"],
        }
    ]


@pytest.mark.parametrize("times", [ASKED, SHORT_LIVED, UNHURRIED, BRIEF])
def test_times_are_ones_that_a_rotation_takes(times: Times, tmp_path: Path) -> None:
    assert Times.load(times.save(tmp_path / "times")) == times
    assert times.settings(("a.b.svc",)).names == ("a.b.svc",)


@pytest.mark.skipif(not compiler(), reason="needs a C compiler")
def test_the_wall_clock_jumps_in_a_process_that_runs(tmp_path: Path) -> None:
    clock = WallClock(tmp_path)
    program = (
        "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", program],
        env=clock.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        seen = []
        for offset_s in (0, 86_400, -86_400):
            clock.set(offset_s)
            process.stdin.write("\n")
            process.stdin.flush()
            seen.append([float(word) for word in process.stdout.readline().split()])
        process.stdin.close()

    walls, steady = zip(*seen, strict=True)
    assert walls[1] - walls[0] == pytest.approx(86_400, abs=60)
    assert walls[2] - walls[0] == pytest.approx(-86_400, abs=60)
    assert steady[2] - steady[0] < 60
