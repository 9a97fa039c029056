# SPDX-License-Identifier: Apache-2.0
"""Kernel calls of a recorded run that one call makes instead: how many are left, and the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import onedispatch as od
from onedispatch.dispatch.runtime import device
from tests.ops.case import run_onnxruntime

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
THREADS = (1, 2, 3, 7)


@dataclass(frozen=True)
class Case:
    """A network of one kernel, whose tiles, and steps, do not divide its extents."""

    inputs: str
    outputs: str
    body: str
    most: int  # calls that a replayed run may make of it
    constants: tuple[tuple[str, tuple[int, ...]], ...] = ()  # weights, by their names
    below: int = 0  # of inputs that are whole numbers

    def model(self) -> onnx.ModelProto:
        head = '<ir_version: 8, opset_import: ["" : 17]>'
        graph = f"g ({self.inputs}) => ({self.outputs}) {{ {self.body} }}"
        proto: onnx.ModelProto = parser.parse_model(f"{head} {graph}")
        rng = np.random.default_rng(5)
        for name, shape in self.constants:
            values = rng.standard_normal(shape, np.float32) / 3
            proto.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
        return proto

    def feed(self, seed: int) -> dict[str, Array]:
        rng = np.random.default_rng(seed)
        feed = {}
        for value in self.model().graph.input:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            if dtype == np.bool_:
                feed[value.name] = rng.random(shape) < 0.5
            elif dtype.kind in "iu":
                low = 0 if dtype.kind == "u" else -self.below
                feed[value.name] = rng.integers(low, self.below, shape).astype(dtype)
            else:
                feed[value.name] = rng.standard_normal(shape).astype(dtype)
        return feed


CASES = {
    # Rows that indices name, of a table that streams by: the last step has fewer of its rows.
    "take": Case(
        "float[30011, 100] x, int64[77] i", "float[77, 100] y", "y = Gather<axis = 0>(x, i)", 4, below=30011
    ),
    "take along columns": Case(
        "float[7, 5003] x, int64[7, 131] i",
        "float[7, 131] y",
        "y = GatherElements<axis = 1>(x, i)",
        4,
        below=5003,
    ),
}


def bits(results: list[Array]) -> list[bytes]:
    return [result.tobytes() for result in results]


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the simulator says of each run."""
    seen: list[dict[str, Any]] = []
    make = device._report

    def report(raw: Any, *rest: Any) -> Any:
        seen.append(dict(raw))
        return make(raw, *rest)

    monkeypatch.setattr(device, "_report", report)
    return seen


@pytest.mark.parametrize("name", CASES)
def test_joined_calls_are_few_and_leave_the_bits_of_the_engine(
    name: str, reports: list[dict[str, Any]]
) -> None:
    case = CASES[name]
    compiled = od.compile(case.model(), fallback="error")
    engine = od.InferenceSession(compiled, threads=1, record=False)
    expected = [bits(engine.run(None, case.feed(seed))) for seed in range(4)]
    for threads in THREADS:
        session = od.InferenceSession(compiled, threads=threads, record=True)
        for seed in range(4):
            results = session.run(None, case.feed(seed))
            assert bits(results) == expected[seed]
        assert session.last_run is not None  # which makes the report
        last = reports[-1]
        assert last["recorded"] == "replayed"
        assert last["calls_made"] <= case.most < last["kernel_calls"]
    for result, wanted in zip(results, run_onnxruntime(case.model(), case.feed(3)), strict=True):
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(
                result.astype(np.float32), wanted.astype(np.float32), rtol=2e-3, atol=2e-3
            )
        else:
            np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("threads", THREADS)
def test_indices_out_of_range_fail_as_on_the_engine(threads: int) -> None:
    """In a call that was joined over steps and tiles; what came before it is made by the engine again."""
    case = CASES["take"]
    compiled = od.compile(case.model(), fallback="error")
    recording, engine = (od.InferenceSession(compiled, threads=threads, record=on) for on in (True, False))
    for seed in range(3):
        recording.run(None, case.feed(seed))
    feed = case.feed(9)
    feed["i"][[3, 70]] = 30011, -30012
    texts = []
    for session in (recording, engine):
        with pytest.raises(od.OneDispatchError) as caught:
            session.run(None, feed)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    feed = case.feed(9)
    feed["i"][:2] = -30011, 30010
    for session in (recording, engine):
        assert np.array_equal(session.run(None, feed)[0], feed["x"][feed["i"]])
