"""Preferred allocation: good advice, and never an error."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from sharing.plugin.binding import ShareBinding
from sharing.plugin.preference import prefer
from sharing.plugin.settings import Packing
from tests.support.plugin_bindings import gpu_uuid, mig, slice_, whole

EIGHT = [whole(index, numa=index // 4) for index in range(8)]


def known(*bindings: ShareBinding) -> dict[str, ShareBinding]:
    return {one.device_id: one for one in bindings}


def indices(ids: tuple[str, ...]) -> list[int]:
    return [int(one[4:12]) for one in ids]


def ids(*numbers: int) -> list[str]:
    return [gpu_uuid(number) for number in numbers]


def test_two_gpus_come_from_one_numa_node() -> None:
    chosen = prefer(ids(0, 5, 1, 6), [], 2, known=known(*EIGHT))
    assert indices(chosen) in ([0, 1], [5, 6])


def test_the_smaller_free_block_is_broken_first() -> None:
    """The buddy rule: a job of four keeps its place."""
    chosen = prefer(ids(0, 1, 2, 3, 4, 5), [], 2, known=known(*EIGHT))
    assert indices(chosen) == [4, 5]
    assert indices(prefer(ids(0, 1, 2, 3, 7), [], 1, known=known(*EIGHT))) == [7]


def test_a_link_outweighs_a_numa_node() -> None:
    links = {frozenset(ids(0, 4)): 3}
    assert indices(prefer(ids(0, 1, 4), [], 2, known=known(*EIGHT), links=links)) == [0, 4]


def test_the_worst_pair_decides_before_the_sum() -> None:
    """0-1 and 0-2 are close, 1-2 is not linked at all; 3, 4 and 5 are all linked a little."""
    gpus = known(*(whole(index) for index in range(6)))
    links = {frozenset(pair): 9 for pair in (ids(0, 1), ids(0, 2))}
    links |= {frozenset(pair): 1 for pair in combinations(ids(3, 4, 5), 2)}
    assert indices(prefer(ids(*range(6)), [], 3, known=gpus, links=links)) == [3, 4, 5]


def test_a_pair_on_one_switch_is_kept_whole_for_a_job_of_two() -> None:
    """Buddies within a NUMA node: 3 has lost its neighbour 2, so it is the one to give away."""
    links = {frozenset(ids(0, 1)): 50, frozenset(ids(2, 3)): 50}
    links |= {frozenset(ids(a, b)): 20 for a in (0, 1) for b in (2, 3)}
    gpus = known(*EIGHT)
    assert indices(prefer(ids(0, 1, 3), [], 1, known=gpus, links=links)) == [3]
    assert indices(prefer(ids(0, 1, 3), [], 2, known=gpus, links=links)) == [0, 1]


def test_a_gpu_without_links_spoils_nothing_for_the_others() -> None:
    """NVIDIA/k8s-device-plugin#2038: one lost GPU; here it has no pair in the matrix."""
    links = {frozenset(pair): 50 for pair in combinations(ids(0, 1, 2), 2)}
    gpus = known(*(whole(index) for index in range(4)))
    assert indices(prefer(ids(*range(4)), [], 3, known=gpus, links=links)) == [0, 1, 2]
    assert indices(prefer(ids(*range(4)), [], 4, known=gpus, links=links)) == [0, 1, 2, 3]


def test_what_must_be_included_draws_the_rest_near() -> None:
    assert indices(prefer(ids(*range(8)), ids(6), 2, known=known(*EIGHT))) == [4, 6]


def test_a_healthy_gpu_is_taken_before_a_sick_one() -> None:
    gpus = known(whole(0, healthy=False), whole(1))
    assert indices(prefer(ids(0, 1), [], 1, known=gpus)) == [1]


def test_sixteen_gpus_are_grown_greedily_into_one_block() -> None:
    gpus = known(*(whole(index, numa=index // 8) for index in range(16)))
    assert indices(prefer(ids(*range(16)), [], 8, known=gpus)) == list(range(8))


def test_packing_fills_the_fullest_gpu_and_spreading_the_emptiest() -> None:
    shares = known(*(slice_(gpu, number) for gpu in (0, 1) for number in range(4)))
    free = [slice_(0, 3).device_id, *(slice_(1, number).device_id for number in range(4))]
    assert prefer(free, [], 1, known=shares) == (slice_(0, 3).device_id,)
    spread = prefer(free, [], 1, known=shares, packing=Packing.SPREAD)
    assert spread == (slice_(1, 0).device_id,)


def test_several_shares_go_to_different_gpus() -> None:
    """NVIDIA/k8s-device-plugin#491, NVIDIA/gpu-operator#386: one GPU or two, nobody knew."""
    shares = known(*(slice_(gpu, number) for gpu in (0, 1) for number in range(4)))
    chosen = prefer(sorted(shares), [], 2, known=shares)
    assert {shares[one].gpu_uuid for one in chosen} == {gpu_uuid(0), gpu_uuid(1)}


def test_share_two_comes_before_share_ten() -> None:
    shares = known(*(slice_(0, number, parts=16) for number in (10, 2)))
    assert prefer(sorted(shares), [], 1, known=shares) == (slice_(0, 2).device_id,)


def test_parts_of_mig_instances_are_packed_and_spread_by_instance() -> None:
    parts = [
        replace(slice_(0, 0), device_id=f"{gpu_uuid(0)}::2g.20gb-{start}::{number}")
        for start in (0, 2)
        for number in (0, 1)
    ]
    ids = [one.device_id for one in parts]
    free = ids[:2] + ids[3:]  # one of the second instance is held
    assert prefer(free, [], 1, known=known(*parts)) == (ids[3],)
    assert prefer(free, [], 1, known=known(*parts), packing=Packing.SPREAD) == (ids[0],)
    assert prefer(ids, [], 2, known=known(*parts)) == (ids[0], ids[2])


def test_mig_shares_are_packed_by_gpu() -> None:
    shares = known(mig(0, 0), mig(0, 1), mig(1, 0))
    assert prefer(sorted(shares), [], 1, known=shares) == (mig(1, 0).device_id,)


POOL = [*EIGHT[:5], *(slice_(gpu, number) for gpu in (5, 6) for number in range(3))]
ANY_IDS = st.lists(
    st.one_of(st.sampled_from([one.device_id for one in POOL]), st.text(max_size=5)), max_size=12
)


@given(ANY_IDS, ANY_IDS, st.integers(-2, 15), st.sampled_from(Packing))
def test_any_question_gets_an_answer_of_the_right_size(
    available: list[str], must: list[str], size: int, packing: Packing
) -> None:
    chosen = prefer(available, must, size, known=known(*POOL), packing=packing)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= {*available, *must}
    assert len(chosen) == min(max(size, 0), len({*available, *must}))
    if size >= len(set(must)):
        assert set(must) <= set(chosen)
    again = prefer(available[::-1], must[::-1], size, known=known(*POOL[::-1]), packing=packing)
    assert again == chosen
