# SPDX-License-Identifier: Apache-2.0
"""Networks as onnxruntime's own quantisers make them: activations and weights, or weights alone."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.frontend.walk import bodies
from onedispatch.operators.declarations.registry import MICROSOFT

Feeds = Iterable[Mapping[str, Array]]

_KINDS = {"s8": "QInt8", "u8": "QUInt8", "s16": "QInt16", "u16": "QUInt16"}


def quantised(
    model: ModelProto,
    feeds: Feeds,
    *,
    activations: str = "s8",
    per_channel: bool = False,
    calibration: str = "MinMax",
    op_types: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> ModelProto:
    """Returns ``model`` in QDQ by the static quantiser, calibrated with ``feeds``.

    Weights are int8. Activations are ``"s8"`` or ``"s16"`` around zero, or ``"u8"`` or ``"u16"`` around a
    zero point. ``calibration`` is a name of onnxruntime's methods; ``op_types`` are all that are quantised,
    () for all that it can; nodes named in ``exclude`` stay in floats. Raises what the quantiser raises.
    """
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Calibration(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(feeds)

        def get_next(self) -> Mapping[str, Array] | None:
            return next(self.left, None)

    with _quiet(), tempfile.TemporaryDirectory() as folder:
        whole, path = Path(folder) / "whole.onnx", Path(folder) / "quantised.onnx"
        onnx.save(_without_sums(model), whole)
        if any(node.op_type == "BatchNormalization" for node in model.graph.node):  # it goes into Conv
            quant_pre_process(whole, whole, skip_symbolic_shape=True)
        quantize_static(
            whole,
            path,
            Calibration(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType[_KINDS[activations]],
            weight_type=QuantType.QInt8,
            per_channel=per_channel,
            op_types_to_quantize=list(op_types) or None,
            nodes_to_exclude=list(exclude),
            calibrate_method=CalibrationMethod[calibration],
            extra_options={"ActivationSymmetric": activations[0] == "s", "WeightSymmetric": True},
        )
        return onnx.load(path)


def with_packed_weights(model: ModelProto, block: int = 32) -> ModelProto:
    """Returns ``model`` with MatMulNBits in place of products with constant matrices: weights of 4 bits, and
    a scale and a zero point for each ``block`` rows of a column.

    It is what onnxruntime's ``MatMulNBitsQuantizer`` writes, by the same function of onnxruntime's; that
    class needs a package beside it.
    """
    result = ModelProto()
    result.CopyFrom(model)
    weights = {one.name: one for one in result.graph.initializer}
    for node in result.graph.node:
        tensor = weights.get(node.input[1]) if node.op_type == "MatMul" and not node.domain else None
        if tensor is not None and len(tensor.dims) == 2 and tensor.data_type == onnx.TensorProto.FLOAT:
            _pack(result, node, numpy_helper.to_array(tensor), block)
    if not any(one.domain == MICROSOFT for one in result.opset_import):
        result.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    used = {name for body, _ in bodies(result) for node in body.node for name in node.input}
    used |= {one.name for one in result.graph.output}
    kept = [one for one in result.graph.initializer if one.name in used]
    del result.graph.initializer[:]
    result.graph.initializer.extend(kept)
    return result


def _pack(model: ModelProto, node: NodeProto, weight: Array, block: int) -> None:
    from onnxruntime.capi._pybind_state import quantize_matmul_4bits

    rows, columns = weight.shape
    blocks = -(-rows // block)
    whole = np.pad(weight, ((0, blocks * block - rows), (0, 0)))
    packed = np.zeros((columns, blocks, block // 2), np.uint8)
    scales = np.zeros((columns, blocks), np.float32)
    zeros = np.zeros((columns, (blocks + 1) // 2), np.uint8)
    quantize_matmul_4bits(packed, np.ascontiguousarray(whole), scales, zeros, block, columns, rows, False)
    names = [f"{node.name or node.output[0]}/{part}" for part in ("packed", "scales", "zeros")]
    made = zip(names, (packed, scales.reshape(-1), zeros.reshape(-1)), strict=True)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in made)
    sizes = {"K": rows, "N": columns, "bits": 4, "block_size": block}
    inputs = [node.input[0], *names]
    node.CopyFrom(helper.make_node("MatMulNBits", inputs, node.output, node.name, domain=MICROSOFT, **sizes))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the quantiser's advice on preparations, and tracebacks of what it then does without."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _without_sums(model: ModelProto) -> ModelProto:
    """The quantiser has no Sum."""
    result = ModelProto()
    result.CopyFrom(model)
    for node in result.graph.node:
        if node.op_type == "Sum" and len(node.input) == 2:
            node.op_type = "Add"
    return result
