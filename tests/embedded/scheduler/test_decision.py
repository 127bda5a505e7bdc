"""Where pods go and why not: one test for each rule of kube-scheduler that is followed."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded.scheduler.decision import rooms_of, schedule
from embedded.scheduler.preemption import preempt
from embedded.scheduler.views import Node, Pod

SHARE = "gpu.sharing/mps-1of4"


def node(name: str, **more: Any) -> Node:
    item: dict[str, Any] = {
        "metadata": {"name": name, "labels": more.pop("labels", {})},
        "spec": {"taints": more.pop("taints", []), "unschedulable": more.pop("cordoned", False)},
        "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "10", **more}},
    }
    return Node.of(item)


def pod(name: str, on: Any = "", spec: Any = None, **more: Any) -> Pod:
    requests = {key: value for key, value in more.items() if "/" in key or key in {"cpu", "memory"}}
    metadata = {"namespace": more.get("namespace", "a"), "name": name, "uid": name}
    item: dict[str, Any] = {
        "metadata": metadata | {"labels": more.get("labels", {})},
        "spec": {"containers": [{"resources": {"requests": requests}}], **(spec or {})},
        "status": {"phase": more.get("phase", "Pending")},
    }
    if on:
        item["spec"]["nodeName"] = on
    return Pod.of(item)


def affinity(**terms: Any) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [terms]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def test_a_pod_goes_where_its_extended_resource_is_free() -> None:
    nodes = [node("n1", **{SHARE: "1"}), node("n2", **{SHARE: "1"})]
    there = pod("there", "n1", **{SHARE: "1"})
    assert schedule(pod("p", **{SHARE: "1"}), nodes, [there]).node == "n2"


def test_a_pod_that_fits_nowhere_is_told_in_upstreams_words() -> None:
    nodes = [node("n1", **{SHARE: "1"}), node("n2")]
    decision = schedule(pod("p", cpu="5", **{SHARE: "2"}), nodes, [pod("x", "n1", **{SHARE: "1"})])
    assert decision.node == ""
    assert decision.message == (
        "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient gpu.sharing/mps-1of4."
    )


def test_no_nodes_at_all_has_its_own_sentence() -> None:
    assert schedule(pod("p"), [], []).message == "no nodes available to schedule pods"


def test_different_reasons_are_counted_each() -> None:
    nodes = [
        node("cordoned", cordoned=True),
        node("tainted", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]),
        node("other", labels={"pool": "x"}),
        node("full", labels={"pool": "mixed"}, pods="0"),
    ]
    assert schedule(pod("p", spec={"nodeSelector": {"pool": "mixed"}}), nodes, []).message == (
        "0/4 nodes are available: 1 Too many pods, 1 node(s) didn't match Pod's node "
        "affinity/selector, 1 node(s) had untolerated taint {team: a}, "
        "1 node(s) were unschedulable."
    )


def test_finished_pods_hold_nothing_and_deleted_ones_hold_until_they_are_gone() -> None:
    nodes = [node("n", **{SHARE: "1"})]
    done = pod("done", "n", phase="Succeeded", **{SHARE: "1"})
    assert schedule(pod("p", **{SHARE: "1"}), nodes, [done]).node == "n"
    leaving = Pod.of(
        {
            "metadata": {"name": "l", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "nodeName": "n",
                "containers": [{"resources": {"requests": {SHARE: "1"}}}],
            },
        }
    )
    assert schedule(pod("p", **{SHARE: "1"}), nodes, [leaving]).node == ""


def test_a_demand_of_zero_fits_where_the_resource_is_unknown() -> None:
    assert schedule(pod("p", **{SHARE: "0"}), [node("n")], []).node == "n"


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations_bear_taints_as_upstream_defines(
    toleration: dict[str, str], fits: bool
) -> None:
    tainted = node("n", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    decision = schedule(pod("p", spec={"tolerations": [toleration]}), [tainted], [])
    assert (decision.node == "n") is fits


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "memory", "operator": "Gt", "values": ["9999"]}, True),
        ({"key": "memory", "operator": "Gt", "values": ["10000"]}, False),
        ({"key": "memory", "operator": "Lt", "values": ["10001"]}, True),
        ({"key": "board", "operator": "Gt", "values": ["1"]}, False),
        ({"key": "board", "operator": "In", "values": ["h100", "a100"]}, True),
        ({"key": "board", "operator": "NotIn", "values": ["h100"]}, False),
        ({"key": "missing", "operator": "NotIn", "values": ["x"]}, True),
        ({"key": "board", "operator": "Exists"}, True),
        ({"key": "board", "operator": "DoesNotExist"}, False),
        ({"key": "missing", "operator": "DoesNotExist"}, True),
        ({"key": "board", "operator": "Like", "values": ["h*"]}, False),
    ],
)
def test_node_affinity_operators(expression: dict[str, Any], fits: bool) -> None:
    labelled = node("n", labels={"memory": "10000", "board": "h100"})
    decision = schedule(pod("p", spec=affinity(matchExpressions=[expression])), [labelled], [])
    assert (decision.node == "n") is fits


def test_match_fields_name_a_node_and_an_empty_term_matches_none() -> None:
    nodes = [node("n1"), node("n2")]
    field = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    assert schedule(pod("p", spec=affinity(matchFields=[field])), nodes, []).node == "n2"
    assert schedule(pod("p", spec=affinity()), nodes, []).node == ""


def test_terms_are_alternatives_and_expressions_are_joint() -> None:
    nodes = [node("n1", labels={"a": "1"}), node("n2", labels={"b": "1", "c": "1"})]
    both = [{"key": key, "operator": "Exists"} for key in ("a", "b")]
    one = [{"key": "c", "operator": "Exists"}]
    required = {"nodeSelectorTerms": [{"matchExpressions": both}, {"matchExpressions": one}]}
    spec = {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }
    assert schedule(pod("p", spec=spec), nodes, []).node == "n2"


def test_preferred_affinity_outweighs_free_room() -> None:
    nodes = [node("n1"), node("n2", labels={"fast": "yes"})]
    busy = pod("busy", "n2", cpu="2")
    term = {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}
    preferred = [{"weight": 1, "preference": term}]
    spec = {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    }
    assert schedule(pod("p"), nodes, [busy]).node == "n1"
    assert schedule(pod("p", spec=spec), nodes, [busy]).node == "n2"


def test_a_soft_taint_is_avoided_where_possible() -> None:
    soft = {"key": "old", "effect": "PreferNoSchedule"}
    assert schedule(pod("p"), [node("n1", taints=[soft]), node("n2")], []).node == "n2"
    assert schedule(pod("p"), [node("n1", taints=[soft])], []).node == "n1"


def test_the_emptier_node_wins_and_ties_go_by_name() -> None:
    nodes = [node("n3"), node("n1"), node("n2")]
    assert schedule(pod("p"), nodes, []).node == "n1"
    assert schedule(pod("p"), nodes, [pod("x", "n1", cpu="1")]).node == "n2"


def anti(term: dict[str, Any], kind: str = "podAntiAffinity") -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def test_anti_affinity_keeps_pods_apart_in_both_directions() -> None:
    nodes = [node("n1", labels={"host": "n1"}), node("n2", labels={"host": "n2"})]
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "host"}
    there = pod("there", "n1", labels={"app": "x"})
    assert schedule(pod("p", spec=anti(term)), nodes, [there]).node == "n2"
    shy = pod("shy", "n1", spec=anti(term))
    assert schedule(pod("p", labels={"app": "x"}), nodes, [shy]).node == "n2"
    only = schedule(pod("p", labels={"app": "x"}), nodes[:1], [shy])
    assert "didn't satisfy existing pods anti-affinity rules" in only.message
    elsewhere = pod("e", "n1", labels={"app": "x"}, namespace="b")
    assert schedule(pod("p", spec=anti(term)), nodes[:1], [elsewhere]).node == "n1"
    reaching = term | {"namespaceSelector": {"matchLabels": {"team": "b"}}}
    assert (
        schedule(
            pod("p", spec=anti(reaching)), nodes, [elsewhere], namespaces={"b": {"team": "b"}}
        ).node
        == "n2"
    )


def test_affinity_brings_pods_together_and_lets_the_first_one_start() -> None:
    nodes = [node("n1", labels={"rack": "1"}), node("n2", labels={"rack": "2"})]
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "rack"}
    spec = anti(term, "podAffinity")
    assert schedule(pod("p", spec=spec, labels={"app": "x"}), nodes, []).node == "n1"
    there = pod("there", "n2", labels={"app": "x"})
    assert schedule(pod("p", spec=spec, labels={"app": "x"}), nodes, [there]).node == "n2"
    alone = schedule(pod("p", spec=spec), nodes, [])
    assert alone.message == "0/2 nodes are available: 2 node(s) didn't match pod affinity rules."


def ranked(name: str, priority: int, on: str = "", **more: Any) -> Pod:
    return replace(pod(name, on, **more), priority=priority)


def test_the_least_important_pods_make_room_and_no_more_than_needed() -> None:
    nodes = [node("n1", **{SHARE: "3"})]
    one = {SHARE: "1"}
    there = [
        ranked("low", 1, "n1", **one),
        ranked("lower", 0, "n1", **one),
        ranked("same", 5, "n1", **one),
    ]
    rooms = rooms_of(nodes, there)
    way = preempt(ranked("p", 5, **one), rooms, namespaces={})
    assert way is not None
    assert (way.node, [victim.name for victim in way.victims]) == ("n1", ["lower"])
    both = preempt(ranked("p", 5, **{SHARE: "2"}), rooms, namespaces={})
    assert both is not None
    assert [victim.name for victim in both.victims] == ["low", "lower"]
    assert preempt(ranked("p", 5, **{SHARE: "3"}), rooms, namespaces={}) is None
    assert preempt(ranked("p", 0, **one), rooms, namespaces={}) is None
    calm = ranked("p", 5, spec={"preemptionPolicy": "Never"}, **one)
    assert preempt(calm, rooms, namespaces={}) is None


def test_the_node_whose_victims_matter_least_is_chosen_and_taints_stay() -> None:
    one = {SHARE: "1"}
    taint = {"key": "x", "effect": "NoSchedule"}
    nodes = [
        node("n1", **one),
        node("n2", **one),
        node("n3", taints=[taint], **one),
    ]
    there = [
        ranked("a", 3, "n1", **one),
        ranked("b", 2, "n2", **one),
        ranked("c", 1, "n3", **one),
    ]
    way = preempt(ranked("p", 9, **one), rooms_of(nodes, there), namespaces={})
    assert way is not None
    assert way.node == "n2"


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=5),
    st.lists(st.integers(0, 3), max_size=25),
    st.randoms(use_true_random=False),
)
def test_no_order_of_input_overfills_a_node_or_changes_the_choice(
    sizes: list[int], asks: list[int], chance: random.Random
) -> None:
    nodes = [node(f"n{index}", **{SHARE: str(size)}) for index, size in enumerate(sizes)]
    placed: list[Pod] = []
    for index, ask in enumerate(asks):
        asking = pod(f"p{index}", **{SHARE: str(ask)})
        decision = schedule(asking, nodes, placed)
        mixed = (chance.sample(nodes, len(nodes)), chance.sample(placed, len(placed)))
        assert schedule(asking, *mixed) == decision
        if decision.node:
            placed.append(pod(f"p{index}", decision.node, **{SHARE: str(ask)}))
        else:
            assert set(decision.reasons) == {one.name for one in nodes}
    for room in rooms_of(nodes, placed):
        assert room.used.get(SHARE, 0) <= room.node.allocatable[SHARE]
        assert len(room.pods) <= 10
