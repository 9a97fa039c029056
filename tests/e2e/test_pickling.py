# SPDX-License-Identifier: Apache-2.0
"""Compiled models and sessions are pickled, for worker processes; what cannot be is a plain error."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import onedispatch as od
from onedispatch.operators.scheduling.select import Search

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

DIGITS = str(Path(__file__).parents[2] / "models" / "digits.onnx")
FEED = {"image": np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)}
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


@pytest.fixture(scope="module")
def model() -> od.CompiledModel:
    return od.compile(DIGITS, precision="bf16", shapes={"image": (1, 1, 8, 8)})


def answer(session: od.InferenceSession) -> tuple[Any, ...]:
    (result,) = session.run(None, FEED)
    return result.tobytes(), session.last_run.cycles


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_model(model: od.CompiledModel, protocol: int) -> None:
    again = pickle.loads(pickle.dumps(model, protocol))
    assert again.transaction == model.transaction and again.precision == "bf16"
    assert again.placement == model.placement and again.inputs == model.inputs
    assert answer(od.InferenceSession(again)) == answer(od.InferenceSession(model))
    for one in (copy.copy(model), copy.deepcopy(model)):
        assert one.transaction == model.transaction


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_session(model: od.CompiledModel, protocol: int) -> None:
    session = od.InferenceSession(model, threads=1, kernel_seconds=7, print=None, trace=5)
    expected = answer(session)
    again = pickle.loads(pickle.dumps(session, protocol))
    assert again.last_run is None and answer(again) == expected
    assert len(again.last_run.trace.calls) == len(session.last_run.trace.calls) == 5
    assert again._options == session._options
    assert pickle.loads(pickle.dumps(session.last_run, protocol)).cycles == expected[1]


def test_a_model_of_open_shapes_compiles_after_it_came() -> None:
    again = pickle.loads(pickle.dumps(od.InferenceSession(DIGITS)))
    assert answer(again) == answer(od.InferenceSession(DIGITS))


def test_work_of_other_processes(model: od.CompiledModel) -> None:
    session = od.InferenceSession(model)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(answer, session).result() == answer(session)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_model_of_a_search_of_its_own(precision: str) -> None:
    shapes = {"image": (1, 1, 8, 8)}
    model = od.compile(DIGITS, precision=precision, shapes=shapes, selector=Search(kept=7))
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert answer(od.InferenceSession(again)) == answer(od.InferenceSession(model))
        fresh = od.compile(DIGITS, precision=precision, shapes=shapes, selector=again.options.selector)
        assert fresh.transaction == model.transaction and again.options.selector._kept == 7
    dense = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[4,8] x, float[8,8] w) => (float[4,8] y) '
        "{ y = MatMul(x, w) }"
    )
    assert pickle.loads(pickle.dumps(od.compile(dense, precision=precision, selector=Search()))).transaction


def test_what_cannot_be_pickled_says_what_to_do() -> None:
    with pytest.raises(od.InputError, match=r"check='access'.*[Mm]ake it where it is used"):
        pickle.dumps(od.InferenceSession(DIGITS, check="access"))
    model = replace(od.compile(DIGITS), left_out="the onnx package is missing")
    with pytest.raises(od.CompiledModelError, match=r"pickle of a CompiledModel.*[Cc]opy the file"):
        pickle.dumps(model)


def test_bytes_that_are_no_model() -> None:
    from onedispatch.dispatch.artifact.loading import unpickled

    with pytest.raises(od.CompiledModelError, match="the pickled bytes"):
        unpickled(b"nonsense", None)
