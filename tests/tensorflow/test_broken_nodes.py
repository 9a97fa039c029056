# SPDX-License-Identifier: Apache-2.0
"""Nodes that are not valid: the model is at fault, not our rules."""

from __future__ import annotations

import random
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import onedispatch as od
from tests.tables import examples
from tests.tensorflow.rule_case import Array, Case, Fed
from tests.tensorflow.rule_cases import CASES

REFUSALS = (od.ModelError, od.UnsupportedModelError, od.UnknownOperatorError)


@settings(max_examples=examples(400), deadline=None)
@given(st.sampled_from(CASES), st.integers(0, 2**32 - 1))
def test_a_broken_node_is_a_defect_of_the_model(one: Case, seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", od.RuleWarning)
        with suppress(*REFUSALS):  # any other error is a defect of ours; a node may have stayed valid
            graphdef, outputs, _ = _broken(one, random.Random(seed)).graphdef()
            od.compile(graphdef, outputs=outputs or None)


def _broken(one: Case, rng: random.Random) -> Case:
    """The case with another attribute, without one, or with an operand of other values or another shape."""
    attributes = {name: value for name, value in one.attributes.items() if not isinstance(value, type)}
    if attributes and rng.random() < 0.5:
        name = rng.choice(list(attributes))
        changed = {**one.attributes, name: _attribute(attributes[name], rng)}
        return replace(one, attributes=changed)
    places = [i for i, given in enumerate(one.operands) if isinstance(given, Fed | np.ndarray)]
    if not places:
        return one
    at = rng.choice(places)
    return replace(
        one, operands=(*one.operands[:at], _operand(one.operands[at], rng), *one.operands[at + 1 :])
    )


def _attribute(value: Any, rng: random.Random) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return rng.choice([-1, 0, 5, 1000])
        case str():
            return rng.choice(["", "SAME", "EXPLICIT", "NCDHW", "x"])
        case list():
            return rng.choice([value[:-1] or [1], [0] * len(value), [-1] * len(value), [*value, 1]])
    return value


def _operand(given: Fed | Array, rng: random.Random) -> Fed | Array:
    array = given.value if isinstance(given, Fed) else given
    kind = rng.choice("flat deep short single other".split())
    if kind == "flat":
        array = array.reshape(-1)
    elif kind == "deep":
        array = array[None]
    elif kind == "short" and array.ndim:
        array = array[:-1]
    elif kind == "single" and array.size:
        array = np.asarray(array.reshape(-1)[0])
    elif array.dtype.kind == "i":
        array = (array.astype(np.int64) * rng.choice([-1, 7, 1000]) + rng.choice([0, 1])).astype(array.dtype)
    return Fed(array, given.free and array.ndim > 0) if isinstance(given, Fed) else array
