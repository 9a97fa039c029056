# SPDX-License-Identifier: Apache-2.0
"""Networks as onnxruntime's own quantiser makes them."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto


def quantised(
    model: ModelProto,
    feeds: list[dict[str, np.ndarray[Any, Any]]],
    *,
    activations: str = "s8",
    per_channel: bool = False,
) -> ModelProto:
    """Returns ``model`` in QDQ by the static quantiser, calibrated with ``feeds``.

    Weights are int8, activations ``"s8"`` around zero or ``"u8"`` around a zero point.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Calibration(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter(feeds)

        def get_next(self) -> dict[str, np.ndarray[Any, Any]] | None:
            return next(self.left, None)

    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # the quantiser advises preparations that are not needed here
    try:
        with tempfile.TemporaryDirectory() as folder:
            whole, path = Path(folder) / "whole.onnx", Path(folder) / "quantised.onnx"
            if any(node.op_type == "BatchNormalization" for node in model.graph.node):  # it goes into Conv
                quant_pre_process(_without_sums(model), whole, skip_symbolic_shape=True)
            else:
                onnx.save(_without_sums(model), whole)
            quantize_static(
                whole,
                path,
                Calibration(),
                quant_format=QuantFormat.QDQ,
                activation_type=QuantType.QInt8 if activations == "s8" else QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                per_channel=per_channel,
                extra_options={"ActivationSymmetric": activations == "s8", "WeightSymmetric": True},
            )
            return onnx.load(path)
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
