# SPDX-License-Identifier: Apache-2.0
"""Recipes: how a model of floats becomes one of integers, as data.

Each names the types of activations and weights, what is quantised, and the precision in which the device
computes what stays float32. The models are onnxruntime's quantiser's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, version_converter

from onedispatch.dispatch.base.precisions import EXACT
from onedispatch.dispatch.frontend.graph import Array
from onedispatch.dispatch.tools.quantising import quantised, with_packed_weights
from onedispatch.transactions.base.errors import InputError, ModelError
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.base.text import did_you_mean

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_WHOLE_HISTOGRAMS = 16  # samples: that method keeps every activation of each
_PER_CHANNEL = 13  # the operator set from which on QDQ has scales per channel
_LANGUAGE = 0.5  # share of float weights in products of constant matrices


@dataclass(frozen=True)
class Recipe:
    """How to quantise.

    Attributes:
        says: what it is, in a line.
        activations: as ``quantised`` has them; "" quantises none.
        weights: bits; 32 leaves them.
        precision: of what stays float32.
        op_types: what is quantised, () for all that can be.
        spare: the share of quantised nodes that stay in floats, those with the largest own errors.
        per_channel: a scale for each channel of weights, where the operator set has that.
        calibration: onnxruntime's method.
        language: for models whose weights are mostly of products, as those of language models.
    """

    name: str
    says: str
    activations: str = ""
    weights: int = 8
    precision: str = EXACT
    op_types: tuple[str, ...] = ()
    spare: float = 0.0
    per_channel: bool = True
    calibration: str = "MinMax"
    language: bool = False

    @property
    def calibrates(self) -> bool:
        return bool(self.activations)


FLOATS = Recipe("fp32", "the model as it is", weights=32)
RECIPES = (
    FLOATS,
    Recipe("bf16", "the model as it is, computed in bfloat16", weights=32, precision="bf16"),
    Recipe("int8", "QDQ, uint8 by int8 per channel, all that can be", "u8"),
    Recipe("int8-bf16", "products as in int8, the rest in bfloat16", "u8", 8, "bf16", PRODUCTS),
    Recipe("mixed", "int8, with the worst nodes in bfloat16", "u8", 8, "bf16", spare=0.1),
    Recipe("a16w8", "QDQ, uint16 by int8 per channel", "u16"),
    Recipe("w4a16", "weights of products in 4 bits, blocks of 32, bfloat16", "", 4, "bf16", language=True),
)
OTHERS = (
    Recipe("int8-percentile", "int8, ranges without outliers (99.999 %)", "u8", calibration="Percentile"),
    Recipe("int8-tensor", "QDQ, int8 around zero, a scale per tensor", "s8", per_channel=False),
)


def chosen(names: Sequence[str] | None, model: ModelProto) -> list[Recipe]:
    """The recipes of these names, after the model as it is; None: those that are usual for such a model.

    Raises ``InputError`` for an unknown name.
    """
    if not names:
        language = is_language(model)
        return [one for one in RECIPES if language or not one.language]
    known = {one.name: one for one in (*RECIPES, *OTHERS)}
    for name in names:
        if name not in known:
            raise InputError("--recipe", repr(name), ", ".join(known), did_you_mean(name, known))
    return [FLOATS, *(known[name] for name in dict.fromkeys(names) if name != FLOATS.name)]


def is_language(model: ModelProto) -> bool:
    """Whether most float weights are matrices that MatMul reads."""
    sizes = {
        one.name: int(np.prod(one.dims))
        for one in model.graph.initializer
        if one.data_type == TensorProto.FLOAT
    }
    products = {node.input[1] for node in model.graph.node if node.op_type == "MatMul"}
    return sum(sizes.get(name, 0) for name in products) > _LANGUAGE * sum(sizes.values()) > 0


def made(
    recipe: Recipe, model: ModelProto, feeds: Sequence[Mapping[str, Array]], spared: Iterable[str] = ()
) -> ModelProto:
    """Returns the model of a recipe, calibrated with ``feeds``; the nodes of ``spared`` stay in floats.

    Raises ``ModelError`` with what the quantiser says where it fails.
    """
    if recipe.weights == FLOATS.weights:
        return model
    try:
        if not recipe.calibrates:
            return with_packed_weights(model)
        few = feeds[:_WHOLE_HISTOGRAMS] if recipe.calibration != "MinMax" else feeds
        return quantised(
            model,
            few,
            activations=recipe.activations,
            per_channel=recipe.per_channel and _opset(model) >= _PER_CHANNEL,
            calibration=recipe.calibration,
            op_types=recipe.op_types,
            exclude=list(spared),
        )
    except Exception as error:
        reraise_from_handler(error)
        text = str(error).strip().split("\n")[0] or type(error).__name__
        where = f"onnxruntime's quantiser, recipe {recipe.name}"
        raise ModelError(where, text, "a model that it takes", "try another --recipe") from error


def prepared(model: ModelProto) -> ModelProto:
    """Returns a copy in which every node has a name, by which the quantiser leaves nodes out, of an operator
    set that has scales per channel, where the model can be turned into one."""
    result = ModelProto()
    result.CopyFrom(model)
    if 0 < _opset(model) < _PER_CHANNEL:
        try:
            result = version_converter.convert_version(result, _PER_CHANNEL)
        except Exception as error:  # noqa: BLE001 (it has no errors of its own)
            reraise_from_handler(error)
    taken = {node.name for node in result.graph.node}
    for place, node in enumerate(result.graph.node):
        name = f"{node.op_type}_{place}"
        node.name = node.name or (name if name not in taken else f"{name}_")
    return result


def _opset(model: ModelProto) -> int:
    return next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)


def check_floats(name: str, model: ModelProto) -> None:
    """Raises ``InputError`` for a model that is quantised already, or that has no float32 to quantise."""
    quantisers = ("Quantize", "QLinear", "QGemm", "QAttention", "MatMulNBits", "MatMulBnb4", "Integer")
    found = [node for node in model.graph.node if any(text in node.op_type for text in quantisers)]
    if found:
        first = f"{found[0].name or found[0].output[0]} ({found[0].op_type})"
        given = f"a model that is quantised already: {first}"
        raise InputError(f"quantize {name}", given, "the model of floats that it was made of")
    kinds = {one.type.tensor_type.elem_type for one in model.graph.input}
    weights = {one.data_type for one in model.graph.initializer}
    if onnx.TensorProto.FLOAT not in kinds | weights:
        types = ", ".join(sorted(TensorProto.DataType.Name(one).lower() for one in kinds | weights))
        given = f"inputs and weights of {types or 'no type'}"
        raise InputError(f"quantize {name}", given, "a model in float32", "export it in float32")
