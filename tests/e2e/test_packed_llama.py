# SPDX-License-Identifier: Apache-2.0
"""A Llama block whose weights are packed, as weight-only quantisers write it: on the device as a whole."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onedispatch as od
from onedispatch.dispatch.tools import zoo
from tests.ops.case import run_onnxruntime
from tests.ops.cases_nbits import nibbles

BLOCK = 32


@cache
def step() -> onnx.ModelProto:
    """One token of a Llama, with weights and a cache."""
    return zoo.randomised(zoo.find_model("models/light/llama_step.onnx"), seed=3)


def packed(model: onnx.ModelProto, bits: int) -> onnx.ModelProto:
    """``model`` with MatMulNBits in place of products with constant matrices: each block from its least value
    to its largest, as onnxruntime's quantiser has it."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    weights = {x.name: x for x in found.graph.initializer}
    for node in found.graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights:
            continue
        w = numpy_helper.to_array(weights[node.input[1]])
        made = quantised(w, bits)
        names = [f"{node.output[0]}/{i}" for i in range(len(made))]
        found.graph.initializer.extend(
            numpy_helper.from_array(one, name) for one, name in zip(made, names, strict=True)
        )
        given = {"K": w.shape[0], "N": w.shape[1], "bits": bits, "block_size": BLOCK}
        node.CopyFrom(
            onnx.helper.make_node(
                "MatMulNBits",
                [node.input[0], *names],
                node.output,
                node.name,
                domain="com.microsoft",
                **given,
            )
        )
    found.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return found


def quantised(w: Any, bits: int) -> list[Any]:
    """[K, N] as packed weights, scales and zero points of blocks."""
    k, n = w.shape
    blocks = -(-k // BLOCK)
    laid = np.pad(w, ((0, blocks * BLOCK - k), (0, 0))).T.reshape(n, blocks, BLOCK)
    most = (1 << bits) - 1
    low, high = np.minimum(laid.min(-1), 0), np.maximum(laid.max(-1), 0)
    scale = np.maximum((high - low) / most, 1e-6).astype(np.float32)
    zero = np.clip(np.rint(-low / scale), 0, most).astype(np.uint8)
    levels = np.clip(np.rint(laid / scale[..., None]) + zero[..., None], 0, most).astype(np.uint8)
    return [nibbles(levels, bits), scale, nibbles(zero, bits)]


@cache
def run(bits: int, precision: str) -> tuple[list[Any], Any]:
    """Outputs and report: strict, in one dispatch."""
    model = packed(step(), bits) if bits < 32 else step()
    session = od.InferenceSession(model, fallback="error", precision=precision)
    found = session.run(None, zoo.random_input(step(), seed=4))
    assert session.last_run is not None and session.last_run.dispatches == 1
    return found, session.last_run


@pytest.mark.daily(2)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_llama_of_packed_weights_runs_as_a_whole(bits: int, precision: str) -> None:
    found, report = run(bits, precision)
    wanted = run_onnxruntime(packed(step(), bits), zoo.random_input(step(), seed=4))
    bound = 1e-5 if precision == "fp32" else 0.05
    for a, e in zip(found, wanted, strict=True):
        assert a.shape == e.shape and np.abs(a - e).max() <= bound * np.abs(e).max()
    _, exact = run(32, precision)
    assert report.cycles < exact.cycles and report.ddr_bytes_read < 0.65 * exact.ddr_bytes_read
