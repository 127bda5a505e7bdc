"""Where a pod may run bears on what it gets: its own selector and required node affinity."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharing.inventory import Inventory, NodeInventory, node_offers
from sharing.shareclass import parse_resource_name
from tests.support.judging import apply, container, judge, pod, policies, profile, resources_of
from webhook.admission import admit_pod
from webhook.nodes import NodeIndex
from webhook.where import ANYWHERE, Requirement, Where, where_of

PLAIN = {"nvidia.com/gpu": 1}
ASKS = container(limits=PLAIN)


def node(name: str, *resources: str, labels: dict[str, str] | None = None) -> NodeInventory:
    classes = [(parse_resource_name(resource), 20000, 250) for resource in resources]
    known = [(found, mib, milli) for found, mib, milli in classes if found is not None]
    return NodeInventory(name=name, offers=node_offers(known), labels=labels or {})


MIG, MPS = "nvidia.com/mig-2g.20gb", "gpu.sharing/mps-1of4"
TWO = Inventory(
    (
        node("n1", MIG, labels={"zone": "a", "rank": "1"}),
        node("n2", MPS, labels={"zone": "b", "rank": "22", "spot": ""}),
    )
)
BOTH = profile(modes=["mig", "mps"])


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def labelled(key: str, operator: str, *values: str) -> dict[str, Any]:
    requirement: dict[str, Any] = {"key": key, "operator": operator}
    return {
        "matchExpressions": [{**requirement, "values": list(values)} if values else requirement]
    }


NAMED = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}


@pytest.mark.parametrize(
    ("spec", "resource"),
    [
        ({}, MIG),
        ({"nodeSelector": {"zone": "a"}}, MIG),
        ({"nodeSelector": {"zone": "b"}}, MPS),
        ({"nodeSelector": {"kubernetes.io/hostname": "n2"}}, MPS),
        ({"affinity": affinity(labelled("zone", "In", "b", "c"))}, MPS),
        ({"affinity": affinity(labelled("zone", "NotIn", "a"))}, MPS),
        ({"affinity": affinity(labelled("spot", "Exists"))}, MPS),
        ({"affinity": affinity(labelled("spot", "DoesNotExist"))}, MIG),
        ({"affinity": affinity(labelled("rank", "Gt", "9"))}, MPS),
        ({"affinity": affinity(labelled("rank", "Lt", "9"))}, MIG),
        ({"affinity": affinity(labelled("zone", "In", "x"), labelled("zone", "In", "b"))}, MPS),
        ({"affinity": affinity(NAMED)}, MPS),
        ({"affinity": affinity({}, labelled("zone", "In", "b"))}, MPS),
        ({"nodeSelector": {"zone": "a"}, "affinity": {"podAffinity": {}}}, MIG),
    ],
)
def test_the_first_mode_that_a_node_of_the_pod_s_can_serve_is_taken(
    spec: dict[str, Any], resource: str
) -> None:
    _, after = judge(pod(ASKS, **spec), BOTH, TWO)
    assert resources_of(after) == {resource: "1"}


def test_a_pod_that_no_node_of_its_choice_can_serve_is_refused() -> None:
    verdict, _ = judge(pod(ASKS, nodeSelector={"zone": "b"}), "mig", TWO)
    assert verdict.code == 403
    assert "where the pod may run (nodeSelector, node affinity)" in verdict.message
    policy = profile(mode="mig", onUnsatisfiable="admit", migProfile="2g.20gb")
    verdict, _ = judge(pod(ASKS, nodeSelector={"zone": "b"}), policy, TWO)
    assert any("the pod waits" in warning for warning in verdict.warnings)


def test_the_pod_s_own_label_stands_over_the_profile_s() -> None:
    policy = profile(modes=["mig", "mps"], nodeSelector={"zone": "a"})
    _, after = judge(pod(ASKS, nodeSelector={"zone": "b"}), policy, TWO)
    assert resources_of(after) == {MPS: "1"}


def test_a_pod_of_a_daemon_set_is_never_refused_for_its_node() -> None:
    """HAMi#960: one refused pod holds up the rollout to all other nodes."""
    bound = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["cpu-1"]}]}
    for term in (bound, NAMED):
        verdict, after = judge(pod(ASKS, affinity=affinity(term)), "mig", TWO)
        assert resources_of(after) == {MIG: "1"}
        assert "bound to offers no such share" in verdict.warnings[0]


def test_memory_asks_are_served_by_nodes_that_the_pod_may_run_on() -> None:
    nodes = Inventory(
        (
            NodeInventory(name="small", offers=_of(10_000), labels={"zone": "a"}),
            NodeInventory(name="large", offers=_of(20_000), labels={"zone": "b"}),
        )
    )
    keys = {"gpu.sharing/memory": "15000Mi"}
    verdict, _ = judge(pod(container(), annotations=keys, nodeSelector={"zone": "a"}), "mps", nodes)
    assert verdict.code == 403
    _, after = judge(pod(container(), annotations=keys, nodeSelector={"zone": "b"}), "mps", nodes)
    assert resources_of(after) == {MPS: "1"}


def _of(memory_mib: int) -> Any:
    share_class = parse_resource_name(MPS)
    assert share_class is not None
    return node_offers([(share_class, memory_mib, 250)])


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"zone": 7}},
        {"nodeSelector": {f"k{n}": "x" for n in range(100)}},
        {"nodeSelector": {"zone": "x" * 10**6}},
        {"affinity": affinity(labelled("zone", "Fancy", "x"))},
        {"affinity": affinity(labelled("zone", "In", *map(str, range(1000))))},
        {"affinity": affinity(*[labelled("zone", "In", "x")] * 1000)},
        {"affinity": affinity(labelled("x" * 10**6, "Exists"))},
        {"affinity": affinity({"matchFields": [{"key": "metadata.uid", "operator": "Exists"}]})},
        {"affinity": affinity({"matchExpressions": [None, 7, {"key": []}]})},
        {"nodeSelector": {"gpu.sharing/board": "H100-80GB"}},
    ],
)
def test_what_cannot_be_known_or_is_huge_is_left_to_the_scheduler(spec: dict[str, Any]) -> None:
    assert judge(pod(ASKS, **spec), "mig", TWO)[0].allowed


def test_hostile_selectors_cost_little_on_many_nodes() -> None:
    """Each distinct one costs far below a millisecond, and nothing of it is kept for ever."""
    many = Inventory(
        tuple(node(f"n{n}", MPS, labels={"zone": f"z{n % 7}", "id": str(n)}) for n in range(5000))
    )
    known = policies()
    admit_pod(pod(ASKS, nodeSelector={"id": "0", "zone": "z0"}), "mps", known, many)
    began = time.process_time()
    for number in range(300):
        term = {
            "matchExpressions": [
                {"key": f"made-up-{number}", "operator": "DoesNotExist"},
                {"key": "id", "operator": "NotIn", "values": [str(number), "x"]},
                {"key": "zone", "operator": "In", "values": ["z1", "z2"]},
            ]
        }
        assert admit_pod(pod(ASKS, affinity=affinity(term)), "mps", known, many).allowed
    assert time.process_time() - began < 0.6, "2 ms each would be far too much"


KEYS = st.sampled_from(["a", "b", "kubernetes.io/hostname"])
VALUES = st.sampled_from(["1", "2", "x", "n0", ""])
REQUIREMENTS = st.builds(
    Requirement,
    KEYS | st.just(""),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(VALUES, min_size=1, max_size=2).map(tuple),
)
WHERES = st.builds(
    Where,
    st.dictionaries(KEYS, VALUES, max_size=2).map(lambda chosen: tuple(sorted(chosen.items()))),
    st.none() | st.lists(st.lists(REQUIREMENTS, max_size=2).map(tuple), max_size=3).map(tuple),
)


def holds(requirement: Requirement, one: NodeInventory) -> bool:
    """Kubernetes' own words: labels.Requirement.Matches, one node at a time."""
    labels = {"kubernetes.io/hostname": one.name, **one.labels}
    value = labels.get(requirement.key) if requirement.key else one.name
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            pass
    bound = requirement.values[0]
    numbers = value is not None and value.isdigit() and bound.isdigit()
    if not numbers or len(requirement.values) != 1 or value is None:
        return False
    return int(value) > int(bound) if requirement.operator == "Gt" else int(value) < int(bound)


@settings(max_examples=200, deadline=None)
@given(
    WHERES,
    st.lists(st.dictionaries(st.sampled_from(["a", "b"]), VALUES, max_size=2), max_size=4),
)
def test_the_index_agrees_with_looking_at_each_node(
    where: Where, labels: list[dict[str, str]]
) -> None:
    nodes = [node(f"n{place}", MPS, labels=carried) for place, carried in enumerate(labels)]
    wanted = {
        place
        for place, one in enumerate(nodes)
        if all(holds(Requirement(k, "In", (v,)), one) for k, v in where.selector)
        and (where.terms is None or any(all(holds(r, one) for r in t) for t in where.terms))
    }
    found = NodeIndex(nodes).fulfilling(where)
    assert {place for place in range(len(nodes)) if found >> place & 1} == wanted


def test_what_we_require_ourselves_does_not_bear_on_the_next_pass() -> None:
    manifest = pod(container(), annotations={"gpu.sharing/memory": "10Gi"})
    verdict = admit_pod(manifest, "mps", policies(), TWO)
    spec = apply(verdict, manifest)["spec"]
    assert where_of(spec, ()).terms == ((),)
    assert NodeIndex(TWO.nodes).fulfilling(where_of(spec, ())) == 3
    assert where_of({"nodeSelector": None, "affinity": {}}, ()) is ANYWHERE
