# SPDX-License-Identifier: Apache-2.0
"""The search leaves out what cannot be best, and chooses what judging everything would choose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onedispatch.operators.scheduling import search
from onedispatch.operators.scheduling.candidates import candidates
from onedispatch.operators.scheduling.cost_model import CostModel
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.solution import Mapping
from onedispatch.operators.scheduling.tilings import Tilings
from onedispatch.transactions import Device, find_device
from tests.ops.case import Case
from tests.ops.cases import CASES
from tests.ops.lowered import lower
from tests.tables import each_case, operator_and_device, sampled

DEVICES = ("npu2", "npu1", "npu1_1col")
MOST_CANDIDATES = 20_000  # of a nest that is judged in full here
EVERY = 48  # of the other cases of an operator and device one in so many; `make nightly` judges all


def _exhaustive(nest: Nest, device: Device, model: CostModel) -> tuple[float, Mapping, int]:
    """The first of the shortlist when all is judged for every mapping, each bound checked on the way."""
    everything = np.arange(len(model.k_tile))
    judged = []

    def judge_all(mapping: Mapping) -> None:
        cost = model.cost(mapping, everything)
        assert (model._bound(mapping) <= cost).all()
        assert model.lower_bound(mapping) <= cost.min()
        judged.append((float(cost.min()), mapping, int(np.argmin(cost))))

    for mapping in search.every_mapping(nest, device):
        judge_all(mapping)
    for _, mapping, _ in sorted(judged, key=lambda j: j[0])[: search.ORDERED_MAPPINGS]:
        for order in search._orders(nest):
            judge_all(replace(mapping, order=order))
    return min(judged, key=lambda j: j[0])


IN_TURNS = [(case, DEVICES[number % len(DEVICES)]) for number, case in enumerate(CASES)]


@pytest.mark.daily(2)
@each_case(
    sampled(IN_TURNS, lambda one: f"{one[0].domain} {one[0].op_type} {one[1]}", EVERY),
    group=lambda one: operator_and_device(one[0]),
    name=lambda one: one[0].id,
)
def test_what_is_left_out_would_not_be_chosen(one: tuple[Case, str]) -> None:
    case, device = one[0], find_device(one[1])
    for _, op in lower(case).ops:
        for nest in op._nests:
            model = CostModel(nest, device, Tilings(nest, device, *candidates(nest)))
            if len(model.k_tile) <= MOST_CANDIDATES:
                assert search.shortlist(nest, device).best == _exhaustive(nest, device, model)
