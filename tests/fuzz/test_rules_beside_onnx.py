# SPDX-License-Identifier: Apache-2.0
"""A model whose operators come by mapping rules is the model in ONNX: same bits, same modelled cycles."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onedispatch as od
from onedispatch.operators.declarations.registry import all_mappings
from tests.fuzz.models import Model, generate
from tests.tables import examples

COUNT = 1600


@pytest.fixture(scope="module", autouse=True)
def rules() -> Iterator[None]:
    """A rule for each of ONNX's operators that maps, in a domain of ours."""
    acme = od.frontend("onnx", domain="acme")
    for mapping in all_mappings():
        if not mapping.domain and onnx.defs.has(mapping.op_type):
            acme.op(mapping.op_type).auto()
    yield
    od.plugins.reset()


def foreign(model: Model) -> onnx.ModelProto | None:
    """The model with operators of domain acme; None where a node has a body or is of a domain."""
    made = onnx.ModelProto()
    made.CopyFrom(model.proto)
    for node in made.graph.node:
        if node.domain or any(one.type == onnx.AttributeProto.GRAPH for one in node.attribute):
            return None
        node.domain = "acme"
    if all(one.domain != "acme" for one in made.opset_import):
        made.opset_import.append(helper.make_opsetid("acme", 1))
    return made


def answer(model: onnx.ModelProto, feed: Any) -> tuple[list[Any], int] | str:
    """Outputs and cycles, all on the device; what kind of error where it is refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session = od.InferenceSession(model, fallback="error")
            outputs = session.run(None, feed)
    except od.OneDispatchError:
        return "refused"
    return outputs, session.last_run.cycles if session.last_run else 0


def test_by_rules_as_by_onnx(subtests: pytest.Subtests) -> None:
    compared = 0
    for seed in range(examples(COUNT)):
        model = generate(f"rules {seed}".encode(), wide=True)
        other = foreign(model)
        if other is None:
            continue
        plain, ruled = answer(model.proto, model.feed), answer(other, model.feed)
        if isinstance(plain, str):
            continue  # nearly valid nodes: a rule may leave out what made them invalid
        with subtests.test(seed):
            assert not isinstance(ruled, str), "refused by its rules"
            assert plain[1] == ruled[1]
            for one, two in zip(plain[0], ruled[0], strict=True):
                assert one.dtype == two.dtype
                np.testing.assert_array_equal(one, two)
        compared += any(np.any(one) for one in plain[0])  # zeros would compare as equal
    assert compared >= 20
