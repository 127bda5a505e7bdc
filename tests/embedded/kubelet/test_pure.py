"""The kubelet's decisions, apart from any socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded.errors import EmbeddedError
from embedded.kubelet import checkpoint
from embedded.kubelet.choosing import Need, ShortageError, choose
from embedded.kubelet.devices import DeviceSet, DeviceTable
from embedded.kubelet.ledger import Holding, Ledger
from embedded.kubelet.naming import is_extended_resource
from embedded.kubelet.nodestatus import NOT_READY, Machine, Offer, resources, status_patch, taints
from embedded.kubelet.podspec import phase_of
from embedded.kubelet.runtime import Container, Phase
from sharing.plugin.proto import deviceplugin_pb2 as api


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.10gb.me", True),
        ("gpu.sharing/mps-1of4", True),
        ("team-a.gpu.sharing/mps-1of4", True),
        ("gpu", False),
        ("kubernetes.io/gpu", False),
        ("x.kubernetes.io/gpu", False),
        ("requests.gpu.sharing/mps-1of4", False),
        ("Nvidia.com/gpu", False),
        ("nvidia.com/" + "x" * 63, True),
        ("nvidia.com/" + "x" * 64, False),
        ("nvidia.com/", False),
        ("nvidia.com/-x", False),
        ("nvidia.com/a/b", False),
        ("a" * 240 + ".com/x", True),
        ("a" * 241 + ".com/x", False),
    ],
)
def test_a_plugin_may_register_extended_resources_only(name: str, legal: bool) -> None:
    assert is_extended_resource(name) is legal


def device(id_: str, health: str) -> api.Device:
    return api.Device(ID=id_, health=health)


def test_any_word_but_healthy_is_unhealthy() -> None:
    listed = [device("a", "Healthy"), device("b", "healthy"), device("c", ""), device("d", "Fine")]
    found = DeviceSet.of(listed)
    assert found.healthy == {"a"}
    assert found.unhealthy == {"b", "c", "d"}


def test_a_dropped_resource_stays_at_zero_until_it_is_back() -> None:
    table = DeviceTable()
    table.put("r", DeviceSet.of([device("a", "Healthy"), device("b", "Sick")]))
    assert (table.capacity(), table.allocatable()) == ({"r": 2}, {"r": 1})
    table.fail("r")
    assert (table.capacity(), table.allocatable()) == ({"r": 2}, {"r": 0})
    table.drop("r")
    assert (table.capacity(), table.allocatable()) == ({"r": 0}, {"r": 0})
    table.put("r", DeviceSet.of([device("a", "Healthy")]))
    assert (table.capacity(), table.allocatable()) == ({"r": 1}, {"r": 1})


# -- choosing


async def test_devices_of_finished_init_containers_come_first() -> None:
    need = Need(
        resource="r", count=2, reusable=frozenset({"z"}), free=frozenset({"a", "b"}), seed="s"
    )
    assert "z" in await choose(need, None)


async def test_too_few_devices_are_told_in_the_kubelets_words() -> None:
    need = Need(resource="r", count=3, reusable=frozenset({"z"}), free=frozenset({"a"}))
    with pytest.raises(ShortageError) as caught:
        await choose(need, None)
    assert str(caught.value) == (
        "requested number of devices unavailable for r. Requested: 2, Available: 1"
    )


async def test_advice_is_advice() -> None:
    asked: list[tuple[set[str], set[str], int]] = []

    async def advise(available: Any, must: Any, size: int) -> list[str]:
        asked.append((set(available), set(must), size))
        return ["not-free", "c"]

    need = Need(
        resource="r",
        count=3,
        reusable=frozenset({"z"}),
        free=frozenset({"a", "b", "c"}),
        seed="s",
    )
    chosen = await choose(need, advise)
    assert asked == [({"a", "b", "c", "z"}, {"z"}, 3)]
    assert {"z", "c"} < set(chosen)
    assert "not-free" not in chosen


async def test_the_lowest_numa_node_that_suffices_is_preferred() -> None:
    numa = {"a": (0,), "b": (1,), "c": (1,), "d": (2,), "e": (2,)}
    need = Need(resource="r", count=2, free=frozenset(numa), numa=numa, align=True, seed="s")
    assert await choose(need, None) == ("b", "c")


@given(
    st.sets(st.sampled_from("abcdefgh")),
    st.sets(st.sampled_from("xyz")),
    st.integers(1, 9),
    st.lists(st.sampled_from("abcdefghxyz?")),
    st.text(max_size=3),
    st.booleans(),
)
async def test_a_choice_is_exact_free_or_reused_and_always_the_same(
    free: set[str], reusable: set[str], count: int, advice: list[str], seed: str, align: bool
) -> None:
    async def advise(_: Any, __: Any, ___: int) -> list[str]:
        return advice

    numa = {id_: (ord(id_) % 2,) for id_ in free}
    need = Need(
        resource="r",
        count=count,
        reusable=frozenset(reusable),
        free=frozenset(free),
        numa=numa,
        align=align,
        seed=seed,
    )
    if count > len(free) + len(reusable):
        with pytest.raises(ShortageError):
            await choose(need, advise)
        return
    chosen = await choose(need, advise)
    assert chosen == await choose(need, advise)
    assert len(set(chosen)) == len(chosen) == count
    assert set(chosen) <= free | reusable
    assert len(reusable.intersection(chosen)) == min(count, len(reusable))


# -- checkpoint

ids = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)


@given(
    st.lists(
        st.tuples(ids, ids, ids, st.sets(ids, min_size=1, max_size=3), st.integers(-1, 1)),
        max_size=6,
    )
)
def test_a_checkpoint_gives_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Any]
) -> None:
    folder, ledger, table = tmp_path_factory.mktemp("c"), Ledger(), DeviceTable()
    for uid, container, resource, devices, node in entries:
        answer = api.ContainerAllocateResponse(envs={"K": uid})
        numa = dict.fromkeys(devices, (node,)) if node >= 0 else {}
        holding = Holding(devices=tuple(sorted(devices)), answer=answer, numa=numa)
        ledger.put(uid, container, resource, holding)
        table.put(resource, DeviceSet.of([device(one, "Healthy") for one in devices]))
    checkpoint.write(folder, ledger, table)
    back, resources_ = checkpoint.read(folder)
    assert list(back.entries()) == list(ledger.entries())
    assert resources_ == table.resources()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"Data": {}, "Checksum": 1}', b"\xff", b'{"Data": null}']
)
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / checkpoint.FILE_NAME).write_bytes(content)
    with pytest.raises(EmbeddedError, match="is damaged") as caught:
        checkpoint.read(tmp_path)
    assert str(tmp_path) in str(caught.value)


# -- node status


def test_allocatable_follows_capacity_for_what_others_write() -> None:
    status = {"capacity": {"gpu.sharing/milli-gpu": "8k"}, "allocatable": {"gone.com/x": "1"}}
    offer = Offer(capacity={"r.com/x": 3}, allocatable={"r.com/x": 2})
    capacity, allocatable = resources(status, Machine(), offer)
    assert capacity["gpu.sharing/milli-gpu"] == allocatable["gpu.sharing/milli-gpu"] == "8k"
    assert (capacity["r.com/x"], allocatable["r.com/x"]) == ("3", "2")
    assert allocatable["gone.com/x"] is None


def test_a_patch_names_only_what_changed_and_never_a_foreign_capacity() -> None:
    machine, offer = Machine(), Offer(capacity={"r.com/x": 8000}, allocatable={"r.com/x": 8000})
    status: dict[str, Any] = {"capacity": {"gpu.sharing/milli-gpu": "8k"}}
    first = status_patch(status, machine, offer, name="n", now="t", beat=True)
    assert "gpu.sharing/milli-gpu" not in first["capacity"]
    assert first["allocatable"]["gpu.sharing/milli-gpu"] == "8k"
    status["capacity"] |= first["capacity"]
    status |= {key: first[key] for key in ("allocatable", "conditions")}
    # The API writes 8000 as 8k.
    status["capacity"]["r.com/x"] = "8k"
    assert status_patch(status, machine, offer, name="n", now="t", beat=False) == {}


def test_a_heartbeat_renews_conditions_without_a_transition() -> None:
    def ready(status: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = next(c for c in status["conditions"] if c["type"] == "Ready")
        return found

    status: dict[str, Any] = {}
    status |= status_patch(status, Machine(), Offer(), name="n", now="t1", beat=True)
    later = status_patch(status, Machine(), Offer(), name="n", now="t2", beat=True)
    assert "capacity" not in later
    assert ready(later)["lastHeartbeatTime"] == "t2"
    assert ready(later)["lastTransitionTime"] == "t1"


def test_taints_of_absence_go_and_others_stay() -> None:
    mine = {"key": "team", "effect": "NoSchedule"}
    absent = {"key": NOT_READY, "effect": "NoSchedule"}
    assert taints([mine, absent], ready=True, at="t") == [mine]
    lost = taints([mine], ready=False, at="t")
    assert [one["effect"] for one in lost] == ["NoSchedule", "NoSchedule", "NoExecute"]


# -- phases

RUNS, DONE = Container(phase=Phase.RUNNING), Container(phase=Phase.EXITED)
DIED = Container(phase=Phase.EXITED, exit_code=1)


@pytest.mark.parametrize(
    ("policy", "init", "apps", "expected"),
    [
        ("Always", [Container()], [Container()], "Pending"),
        ("Always", [DONE], [Container()], "Pending"),
        ("Always", [DONE], [RUNS], "Running"),
        ("Always", [], [DIED], "Running"),
        ("Always", [], [Container(last=DIED)], "Running"),
        ("OnFailure", [], [DIED, DONE], "Running"),
        ("OnFailure", [], [DONE, DONE], "Succeeded"),
        ("Never", [], [DONE, DIED], "Failed"),
        ("Never", [], [DONE, RUNS], "Running"),
        ("Never", [DIED], [Container()], "Failed"),
        ("OnFailure", [DIED], [Container()], "Pending"),
    ],
)
def test_a_pods_phase_follows_from_its_containers(
    policy: str, init: list[Container], apps: list[Container], expected: str
) -> None:
    spec = {
        "restartPolicy": policy,
        "initContainers": [{"name": f"i{n}"} for n, _ in enumerate(init)],
        "containers": [{"name": f"a{n}"} for n, _ in enumerate(apps)],
    }
    states = {f"i{n}": one for n, one in enumerate(init)} | {
        f"a{n}": one for n, one in enumerate(apps)
    }
    assert phase_of({"spec": spec}, states) == expected
