# SPDX-License-Identifier: Apache-2.0
"""What the onnx package's node tests of our operators are expected to do, in one place.

Every test whose nodes are all of ``OPERATORS`` must run in strict mode, except those that ``refusal`` gives
the reason of: what it says follows from the registry and from the node. Nothing is skipped, and no test is
named, so that those which newer releases of onnx bring are expected to do the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onedispatch.dispatch.bodies.function_bodies import has_operator_body
from onedispatch.operators.declarations.registry import all_mappings
from onedispatch.operators.mappings.pow import EXPONENTS
from onedispatch.operators.mappings.quantise import TO

_DTYPES = {mapping.op_type: mapping.dtypes for mapping in all_mappings() if not mapping.domain}

# Tests of our operators that the oldest supported onnx has; newer ones have more.
AT_LEAST = 185


def refusal(test: Any) -> str | None:
    """What the error says (a pattern) where a node of the test must be refused; None: it must run."""
    types = {value.name: value.type for value in test.model.graph.input}
    reasons = (_of_node(node, types, test) for node in test.model.graph.node)
    return next((reason for reason in reasons if reason), None)


def by_body(test: Any) -> bool:
    """Whether every node that its mapping refuses has a function body, which may map: see ``test_bodies``."""
    types = {value.name: value.type for value in test.model.graph.input}
    opset = next((one.version for one in test.model.opset_import if one.domain in ("", "ai.onnx")), 1)
    refused = [node for node in test.model.graph.node if _of_node(node, types, test)]
    return bool(refused) and all(has_operator_body(node.op_type, "", opset) for node in refused)


def _of_node(node: onnx.NodeProto, types: dict[str, onnx.TypeProto], test: Any) -> str | None:
    first = types.get(node.input[0]) if node.input else None
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    outputs = [name for name in node.output if name]
    if first is not None and not first.HasField("tensor_type"):
        return rf"{'seq' if first.HasField('sequence_type') else 'optional'}\(.* \(nearest: tensors\)"
    accepted = _DTYPES[node.op_type]
    if first is not None and "any" not in accepted and (dtype := _dtype(first)) not in accepted:
        return f"{node.op_type} of {dtype} "
    made = next((value.type for value in test.model.graph.output if value.name == node.output[0]), None)
    to = attributes.get("to", made and made.tensor_type.elem_type)
    match node.op_type:
        case "Cast" | "CastLike" if to and (name := _name(to)) not in accepted:
            return f"{node.op_type} to {name} "
        case "QuantizeLinear" if to and (name := _name(to)) not in TO:
            return f"QuantizeLinear to {name} "
        case "Pow" if (by := _dtype(types[node.input[1]])) not in EXPONENTS:
            return f"Pow by {by} "
        case "BatchNormalization" if attributes.get("training_mode"):
            return "training mode"
        case "Dropout" if len(outputs) > 1:
            return "Dropout with its mask output"
        case "Dropout" if len(node.input) > 2 and _given(test, node.input[2]).any():
            return "Dropout in training mode"
        case "Resize" if attributes.get("coordinate_transformation_mode") == b"tf_crop_and_resize":
            # Their roi is an input: data, of which the host computes no weights.
            return "roi computed at run time" if node.input[1] in types else None
    return None


def _dtype(tensor: onnx.TypeProto) -> str:
    return _name(tensor.tensor_type.elem_type)


def _name(kind: int) -> str:
    """NumPy's name of an element type; strings, which NumPy has as objects, by their own."""
    found = helper.tensor_dtype_to_np_dtype(kind)
    return "strings" if found.hasobject else str(found)


def _given(test: Any, name: str) -> np.ndarray[Any, Any]:
    """The value of an input of the test in its first data set."""
    at = [value.name for value in test.model.graph.input].index(name)
    value = test.data_sets[0][0][at]
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
