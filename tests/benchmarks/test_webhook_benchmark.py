"""The webhook's benchmark on tiny inputs: what it measures, it measures right. Nothing is timed."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.webhook import building, restarts
from benchmarks.webhook.behaviour import Behaviour, DisagreementError, behaviour_of, check_same
from benchmarks.webhook.credentials import Credentials
from benchmarks.webhook.loads import Bench
from benchmarks.webhook.machine import Cores, Times, on_core, resident_mb
from benchmarks.webhook.processes import Load, Webhook, go_command, our_command
from benchmarks.webhook.report import OURS, SERVERS, Results, figures
from benchmarks.webhook.restarts import Survived
from benchmarks.webhook.reviews import UID, inputs
from benchmarks.webhook.rounds import Figure, Rounds, measure_rounds, turns
from benchmarks.webhook.world import write_world
from sharing.errors import UnavailableError
from tests.cluster import needs
from webhook.answer import answer_body
from webhook.static import read_static

needs_go = pytest.mark.skipif(
    building.find_go() is None or not needs.wanted(),
    reason="the Go servers were not built and tried: make test-cluster does it, with Go on PATH",
)
_INTERRUPTED = """
import tempfile, time
from contextlib import ExitStack
from pathlib import Path
from benchmarks.webhook.building import build, find_go
from benchmarks.webhook.credentials import Credentials
from benchmarks.webhook.processes import Load, Webhook, go_command

programs = build(find_go(), ("lean", "load"))
with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
    credentials = Credentials.make(Path(folder), successors=0)
    load = stack.enter_context(Load(programs.path("load"), core=0))
    lean = go_command("lean", programs.path("lean"))
    server = Webhook(lean, credentials, core=0, folder=Path(folder))
    stack.callback(server.close)
    server.wait_ready()
    print(server.pid, load._process.pid, flush=True)
    time.sleep(60)
"""
INPUTS = {one.name: one for one in inputs()}


def test_what_differs_from_pod_to_pod_stands_in_the_bodies() -> None:
    typical, unlike = INPUTS["typical"], INPUTS["unlike"]

    assert typical.body.count(UID.encode()) == 1
    # The token's volume, its mount in three containers, and who owns these fields.
    assert [typical.body.count(mark.encode()) for mark in typical.marks] == [7, 0]
    assert [unlike.body.count(mark.encode()) for mark in unlike.marks] == [7, 1]


def patched(operations: list[dict[str, Any]]) -> bytes:
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    response = {"uid": UID, "allowed": True, "patchType": "JSONPatch", "patch": patch}
    return json.dumps({"response": response}).encode()


def test_the_reviews_are_as_large_as_the_report_says() -> None:
    sizes = {name: len(one.body) for name, one in INPUTS.items()}

    assert 8_000 < sizes["typical"] < 9_500
    assert 2_500 < sizes["small"] < 3_500
    assert 110_000 < sizes["env1500"] < 125_000
    assert INPUTS["malformed"].pod is None


def test_each_review_gets_the_verdict_that_it_is_there_for(tmp_path: Path) -> None:
    snapshot = read_static(write_world(tmp_path / "world", 3))
    found = {}
    for name, asked in INPUTS.items():
        answer = answer_body(asked.body, snapshot).answer
        found[name] = behaviour_of(asked, answer.outcome.http_status, answer.body)

    assert {name: one.verdict for name, one in found.items()} == {
        "typical": "allowed",
        "unlike": "allowed",
        "novel": "allowed",
        "foreign": "allowed",
        "small": "allowed",
        "env1500": "allowed",
        "denied": "denied",
        "malformed": "refused",
    }
    assert found["foreign"].pod == INPUTS["foreign"].pod
    typical = found["typical"].pod
    assert typical is not None
    limits = [one["resources"].get("limits", {}) for one in typical["spec"]["containers"]]
    assert [
        {key: text for key, text in one.items() if key.startswith("gpu.sharing/")} for one in limits
    ] == [
        {"gpu.sharing/mps-1of4": "1", "gpu.sharing/milli-gpu": "250"},
        {"gpu.sharing/mps-1of8": "1", "gpu.sharing/milli-gpu": "125"},
        {},
    ]


def test_a_round_goes_there_and_back_and_ratios_stay_within_it() -> None:
    costs = {"a": iter([2.0, 4.0, 9.0, 9.0]), "b": iter([1.0, 2.0, 3.0, 3.0])}

    rounds = measure_rounds(["a", "b"], lambda name: next(costs[name]), rounds=2)

    assert turns(["a", "b", "c"]) == ["a", "b", "c", "c", "b", "a"]
    assert rounds.ratio("a", "b") == Figure(median=2.5, low=2.0, high=3.0)
    assert rounds.figure("b") == Figure(median=2.25, low=1.5, high=3.0)


def test_stolen_and_idle_time_are_parts_of_the_whole() -> None:
    before, after = Times(stolen=10, idle=50, total=100), Times(stolen=15, idle=75, total=150)

    assert after.stolen_since(before) == pytest.approx(0.1)
    assert after.idle_since(before) == pytest.approx(0.5)
    assert Times.now().total > 0


def test_a_process_starts_on_its_core_and_we_stay_where_we_were() -> None:
    before = os.sched_getaffinity(0)
    core = Cores.choose().client
    asks = "import os; print(os.sched_getaffinity(0))"
    with on_core(core):
        said = subprocess.run([sys.executable, "-c", asks], capture_output=True, check=True)

    assert said.stdout.strip() == str({core}).encode()
    assert os.sched_getaffinity(0) == before
    assert resident_mb(os.getpid()) > 1


def test_servers_that_differ_are_not_timed() -> None:
    asked = INPUTS["typical"]
    one = [{"op": "add", "path": "/spec/nodeName", "value": "n1"}]
    same = behaviour_of(asked, 200, patched(one))
    again = behaviour_of(asked, 200, patched([*one, {"op": "replace", **one[0]} | {"op": "add"}]))
    other = behaviour_of(asked, 200, patched([{**one[0], "value": "n2"}]))

    check_same(asked, {"a": same, "b": again})
    with pytest.raises(DisagreementError, match="b and a do not do the same: the pods differ"):
        check_same(asked, {"a": same, "b": other})
    with pytest.raises(DisagreementError, match="verdict 'refused' in place of 'allowed'"):
        check_same(asked, {"a": same, "b": behaviour_of(asked, 500, b"no")})


def test_an_answer_for_another_review_is_no_answer() -> None:
    answer = patched([]).replace(UID.encode(), b"another")

    with pytest.raises(DisagreementError, match="another"):
        behaviour_of(INPUTS["typical"], 200, answer)


@pytest.mark.parametrize("answer", [(400, b"no JSON"), (200, b'{"response":{"allowed":false}}')])
def test_a_body_that_is_no_review_may_be_refused_in_either_way(answer: tuple[int, bytes]) -> None:
    assert behaviour_of(INPUTS["malformed"], *answer) == Behaviour(verdict="refused")


def rounds_of(cost: float) -> Rounds:
    return Rounds(values=tuple(dict.fromkeys(SERVERS, cost) for _ in range(3)))


def test_the_figures_have_the_keys_that_others_read() -> None:
    results = Results(
        cpu={name: rounds_of(3000.0) for name in INPUTS},
        growth=Figure(median=1.0, low=0.9, high=1.1),
        crowd_mb=100.0,
        survived=Survived(
            restarts=5,
            changes=5,
            sent=10,
            failed=0,
            first_error="",
            certificates=6,
            unclean=0,
            worst_ms=1.0,
        ),
    )

    flat = figures(results)

    wanted = {
        "cpu_ratio_go_idiom": 1.0,
        "cpu_ratio_go_hand": 1.0,
        "cpu_ratio_go_lean": 1.0,
        "cpu_ratio_go_idiom_unlike": 1.0,
        "cpu_ratio_go_lean_novel": 1.0,
        "cpu_us_ours": 3000.0,
        "env1500_ms": 3.0,
        "growth_10_to_10000": 1.0,
        "rss_mb_10000_namespaces": 100.0,
        "failed_during_restarts": 0,
    }
    assert {key: flat[key] for key in wanted} == wanted
    assert all(isinstance(value, int | float) for value in flat.values())


def test_without_go_the_benchmark_says_what_to_install() -> None:
    with pytest.raises(UnavailableError, match="no go command on PATH; install Go"):
        building.build(None)


@pytest.fixture(scope="session")
def programs() -> building.Programs:
    """The programs that need nothing but Go's own library; controller-runtime takes minutes."""
    return building.build(building.find_go(), ("lean", "load"))


@pytest.fixture
def bench(programs: building.Programs, tmp_path: Path) -> Iterator[Bench]:
    core = Cores.choose().server
    credentials = Credentials.make(tmp_path, successors=1)
    world = write_world(tmp_path / "world", 10)
    commands = [our_command(OURS, world), go_command("go_lean", programs.path("lean"))]
    servers = [Webhook(one, credentials, core=core, folder=tmp_path) for one in commands]
    try:
        with Load(programs.path("load"), core=Cores.choose().client) as load:
            yield Bench(
                load=load,
                credentials=credentials,
                servers={server.name: server.wait_ready() for server in servers},
                folder=tmp_path,
                sample_s=0.01,
            )
    finally:
        for server in servers:
            server.close()


@needs_go
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", INPUTS)
def test_the_lean_go_server_does_what_ours_does(bench: Bench, name: str) -> None:
    bench.check(INPUTS[name])

    assert bench.cpu_us(OURS, INPUTS[name]) > 0
    assert bench.cpu_us("go_lean", INPUTS[name], fresh=True) > 0


@needs_go
@pytest.mark.timeout(300)
def test_latency_counts_every_planned_request(bench: Bench) -> None:
    bench.check(INPUTS["small"])

    found = bench.latency("go_lean", INPUTS["small"], rate=100.0, duration_s=0.2)

    assert (found.failed, found.rate) == (0, 100.0)
    assert 0 < found.p50_ms <= found.p99_ms <= found.p999_ms


@needs_go
@pytest.mark.timeout(300)
def test_replicas_and_certificates_change_under_load(
    programs: building.Programs, tmp_path: Path
) -> None:
    credentials = Credentials.make(tmp_path, successors=1)
    with Load(programs.path("load"), core=Cores.choose().client) as load:
        run = restarts.Restarts(
            load=load,
            credentials=credentials,
            world=write_world(tmp_path / "world", 10),
            core=Cores.choose().server,
            folder=tmp_path,
            say=lambda _: None,
        )

        survived = run.survive(INPUTS["small"], times=1)

    assert survived.first_error == ""
    assert (survived.failed, survived.unclean) == (0, 0)
    assert survived.certificates == 2
    assert survived.sent > restarts.RATE


@needs_go
@pytest.mark.timeout(300)
def test_the_load_generator_fails_on_a_wrong_status(bench: Bench) -> None:
    asked = INPUTS["small"]
    bench.check(asked)
    bench._statuses[OURS, asked.name] = 201

    with pytest.raises(UnavailableError, match="status 200"):
        bench.cpu_us(OURS, asked)


@needs_go
@pytest.mark.timeout(300)
def test_an_interrupt_leaves_no_process_behind(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as running:
        assert running.stdout is not None
        pids = [int(text) for text in running.stdout.readline().split()]
        running.send_signal(signal.SIGINT)
        status = running.wait(60)

    assert len(pids) == 2
    assert status != 0
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []
