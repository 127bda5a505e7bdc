"""The planner's rules and the simulated hardware's were written apart; here they must agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sharing import catalogue
from sharing.board import Board
from sharing.miglayout import Placed, legal_placements, states
from sharing.nvml.simulator import hardware, operate
from sharing.nvml.simulator.state import Gpu


def rules(board: Board) -> tuple[object, ...]:
    """What decides about places: boards that are alike in it need not all be tried."""
    return tuple(
        (each.placements, each.max_instances, each.decoders, each.encoders, each.jpegs, each.ofas)
        for each in board.mig
    )


BOARDS = list({rules(board): board for board in catalogue.load().boards if board.mig}.values())


def empty_gpu(board: Board) -> Gpu:
    gpu = operate.new_machine([board], seed="rules").gpus[0]
    return replace(gpu, mig_current=True, mig_pending=True)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_every_planned_state_can_be_made_and_nothing_else_fits_beside_it(board: Board) -> None:
    made: dict[tuple[Placed, ...], Gpu] = {(): empty_gpu(board)}
    for state in states(board):
        if state:
            before, last = made[state[:-1]], state[-1]
            offered = board.mig_profile(last.profile)
            made[state], _ = hardware.create_gpu_instance(before, offered, last.placement)
        for offered in board.mig:
            planned = legal_placements(board, offered.profile, state)
            assert tuple(hardware.legal_now(made[state], offered)) == planned
