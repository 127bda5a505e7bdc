"""Which layout a node follows, whose spec it is, and what is said about it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sharing.api.layout import GpuLayoutSpec
from sharing.api.node import GpuNodeSpec
from sharing.controller.layouts import (
    Assignment,
    LayoutSeen,
    NodeSeen,
    assign_layouts,
    is_by_hand,
)
from sharing.layout import GpuIdentity


def layout(
    name: str, *, priority: int = 0, mode: str = "time-slicing", **labels: str
) -> LayoutSeen:
    entry = {"gpus": "all", "mode": mode} | ({} if mode == "exclusive" else {"sizes": {"1of2": 2}})
    spec = {"priority": priority, "nodeSelector": {"matchLabels": labels}, "gpus": [entry]}
    return LayoutSeen(name=name, generation=1, spec=GpuLayoutSpec.model_validate(spec))


def node(name: str, *, gpus: int = 2, **labels: str) -> NodeSeen:
    return NodeSeen(
        name=name,
        labels=labels,
        gpus=tuple(
            GpuIdentity(index=index, uuid=f"GPU-{name}-{index}", board="H100-80GB")
            for index in range(gpus)
        ),
        version="1",
    )


def applied(before: NodeSeen, result: Assignment) -> NodeSeen:
    """The node once what was decided is written."""
    for write in result.writes:
        if write.node == before.name:
            return replace(before, spec=write.spec, mark=write.mark)
    return before


def reasons(result: Assignment) -> dict[str, str]:
    return {outcome.layout: outcome.reason for outcome in result.outcomes}


def test_every_gpu_of_a_node_is_named_in_what_is_written() -> None:
    entries = {"gpus": [{"gpus": "0", "mode": "mps", "sizes": {"1of4": 4}}]}
    one = LayoutSeen(name="a", spec=GpuLayoutSpec.model_validate(entries))

    (write,) = assign_layouts([one], [node("n1")]).writes

    assert [str(gpu.layout.mode) for gpu in write.spec.gpus] == ["mps", "exclusive"]


def test_what_is_written_is_not_written_again() -> None:
    first = node("n1")
    done = applied(first, assign_layouts([layout("a")], [first]))

    result = assign_layouts([layout("a")], [done])
    assert result.writes == ()
    assert reasons(result) == {"a": "Applied"}


def test_the_highest_priority_wins_and_the_other_is_told() -> None:
    result = assign_layouts([layout("a"), layout("b", priority=1, mode="mps")], [node("n1")])

    (write,) = result.writes
    assert write.mark.startswith("b/")
    assert reasons(result) == {"a": "Overruled", "b": "Pending"}
    assert "n1 follows b instead" in result.outcomes[1].message


def test_a_layout_is_applied_only_when_the_agent_has_taken_in_what_was_written() -> None:
    """nebuly-ai/nos#57: what was written together was read in the wrong order."""
    first = node("n1")
    result = assign_layouts([layout("a")], [first])
    written = replace(applied(first, result), trouble="its agent has not seen it")

    assert reasons(result) == {"a": "Pending"}
    assert reasons(assign_layouts([layout("a")], [written])) == {"a": "Pending"}
    assert reasons(assign_layouts([layout("a")], [replace(written, trouble="")])) == {
        "a": "Applied"
    }


def test_a_tie_goes_to_the_first_name_and_is_reported_as_a_conflict() -> None:
    result = assign_layouts([layout("b", mode="mps"), layout("a")], [node("n1")])

    assert result.writes[0].mark.startswith("a/")
    assert reasons(result)["b"] == "Conflict"


def test_a_spec_written_by_hand_is_respected_and_told_of() -> None:
    first = node("n1")
    done = applied(first, assign_layouts([layout("a")], [first]))
    by_hand = replace(
        done,
        spec=GpuNodeSpec.model_validate(
            {"gpus": [{"uuid": "GPU-n1-0", "layout": {"mode": "exclusive"}}]}
        ),
    )

    result = assign_layouts([layout("a")], [by_hand])
    assert result.writes == ()
    assert reasons(result) == {"a": "WrittenByHand"}
    given_back = replace(by_hand, spec=GpuNodeSpec())
    assert len(assign_layouts([layout("a")], [given_back]).writes) == 1


def test_a_cordon_is_kept_and_does_not_make_a_spec_hand_written() -> None:
    first = node("n1")
    done = applied(first, assign_layouts([layout("a")], [first]))
    gpus = (done.spec.gpus[0].model_copy(update={"cordoned": True}), done.spec.gpus[1])
    cordoned = replace(done, spec=GpuNodeSpec(gpus=gpus))

    assert not is_by_hand(cordoned)
    (write,) = assign_layouts([layout("a", mode="exclusive")], [cordoned]).writes
    assert [gpu.cordoned for gpu in write.spec.gpus] == [True, False]


def test_a_node_that_never_had_a_layout_keeps_what_it_is() -> None:
    assert assign_layouts([], [node("n1")]).writes == ()
    assert reasons(assign_layouts([layout("a", pool="x")], [node("n1")])) == {"a": "NoNodes"}


def test_a_node_whose_layout_was_removed_becomes_exclusive() -> None:
    first = node("n1")
    done = applied(first, assign_layouts([layout("a")], [first]))

    (write,) = assign_layouts([], [done]).writes
    assert {str(gpu.layout.mode) for gpu in write.spec.gpus} == {"exclusive"}
    assert assign_layouts([], [applied(done, assign_layouts([], [done]))]).writes == ()


def test_a_layout_that_cannot_be_understood_stops_no_other() -> None:
    broken = LayoutSeen(name="broken", complaint="GPULayout broken: unknown field spec.gpu")

    result = assign_layouts([broken, layout("a")], [node("n1")])
    assert len(result.writes) == 1
    assert reasons(result)["broken"] == "Invalid"


def test_a_silent_node_waits_and_stops_no_other() -> None:
    """nebuly-ai/nos: one node that was not ready stopped the planning of all."""
    result = assign_layouts([layout("a")], [node("n1", gpus=0), node("n2")])

    assert [write.node for write in result.writes] == ["n2"]
    assert reasons(result) == {"a": "Pending"}


@given(st.permutations(range(5)), st.permutations(range(4)))
def test_the_order_in_which_things_are_seen_decides_nothing(
    layout_order: list[int], node_order: list[int]
) -> None:
    layouts = [layout(f"l{n}", priority=n % 2, zone=str(n % 3)) for n in range(5)]
    nodes = [node(f"n{n}", zone=str(n % 3)) for n in range(4)]

    shuffled = assign_layouts([layouts[n] for n in layout_order], [nodes[n] for n in node_order])
    assert shuffled == assign_layouts(layouts, nodes)
