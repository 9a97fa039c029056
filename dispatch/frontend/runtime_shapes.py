# SPDX-License-Identifier: Apache-2.0
"""Nodes whose shapes onnx infers otherwise than onnxruntime computes them: onnxruntime is right.

- Before opset 22 ``ceil_mode`` counts windows that begin in the padding behind the data, where no value
  is; before opset 11 Squeeze and Unsqueeze pass over negative axes. onnxruntime computes both as the
  newer versions say, whatever the model's opset: so inference sees such a node as a call of a local
  function that imports the newer operator set.
- Squeeze with an empty list of axes squeezes all that can be, as without a list.
- MaxUnpool with ``output_shape`` has that shape; inference says nothing. It sees a Resize to those sizes.
- The length of a Range follows from its operands in every type; onnx knows it of words and longer ones only,
  whose differences overflow, and rounds those of floats before it divides.
- Of a GatherND whose result is a scalar inference says nothing: it sees one more dimension come and go.
- Resized lengths are products of float32; inference does not round them, and cuts off what is left.
- A ConvTranspose may have any ``output_shape``; inference stops at lengths below the data's. And what
  ``auto_pad`` cuts off includes ``output_padding``, which inference adds afterwards.
- STFT gives half of its frequencies unless ``onesided`` says otherwise; inference takes that to be 0.
- Of some normalisations onnx infers nothing: they have the type and the shape of their first input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, isfinite
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

_DOMAIN = "onedispatch.newer"


def _attribute(node: NodeProto, name: str) -> list[int]:
    """An integer attribute as a list; empty where it is absent."""
    for attribute in node.attribute:
        if attribute.name == name:
            return list(attribute.ints) or [attribute.i]
    return []


def _rounds_up(node: NodeProto) -> bool:
    return any(_attribute(node, "ceil_mode"))


def _counts_from_the_end(node: NodeProto) -> bool:
    return any(axis < 0 for axis in _attribute(node, "axes"))


# op_type -> (opset from which inference is right, whether a node is concerned)
INFERRED_AS_NEWER: dict[str, tuple[int, Callable[[NodeProto], bool]]] = {
    "AveragePool": (22, _rounds_up),
    "LpPool": (22, _rounds_up),
    "MaxPool": (22, _rounds_up),
    "Squeeze": (11, _counts_from_the_end),
    "Unsqueeze": (11, _counts_from_the_end),
}

# What onnx has a function body of, but no inference that gets through it.
_ALIKE = ("GroupNormalization", "MeanVarianceNormalization")


def infer_as_computed(model: ModelProto) -> None:
    """Replaces such nodes of ``model``, which is for shape inference alone."""
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    empty = {
        t.name
        for t in model.graph.initializer
        if list(t.dims) == [0] and t.data_type == onnx.TensorProto.INT64
    }
    counts: dict[int, int] = {}
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    for index, node in enumerate(model.graph.node):
        for attribute in node.attribute:
            if attribute.name == "ceil_mode" and attribute.i:  # any flag but 0 is one
                attribute.i = 1
        if node.op_type == "Squeeze" and node.domain in ("", "ai.onnx"):
            _drop_empty_axes(node, empty)
        if node.op_type == "STFT" and node.domain in ("", "ai.onnx") and not _attribute(node, "onesided"):
            node.attribute.append(helper.make_attribute("onesided", 1))
        if node.op_type == "Range" and node.domain in ("", "ai.onnx"):
            count = _count(node, known)
            counts |= {} if count is None else {index: count}
        if node.op_type in _ALIKE and node.domain in ("", "ai.onnx") and node.input and node.output:
            node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output[:1], name=node.name))
        if node.op_type == "MaxUnpool" and node.domain in ("", "ai.onnx") and opset >= _RESIZE_TAKES_SIZES:
            _resize(node)
        if node.op_type == "ConvTranspose" and node.domain in ("", "ai.onnx"):
            _pad_as_said(node, model, known)
        since, concerned = INFERRED_AS_NEWER.get(node.op_type, (0, _rounds_up))
        if opset < since and node.domain in ("", "ai.onnx") and concerned(node):
            _wrap(model, node, f"node{index}", since)
    if counts:
        _say_counts(model, counts)
    _expand(model, opset)


_RESIZE_TAKES_SIZES = 13  # and no region of interest


def _resize(node: NodeProto) -> None:
    """A MaxUnpool that says its shape, as a node that inference takes it from."""
    if len(node.input) > 2 and node.input[2]:
        inputs = [node.input[0], "", "", node.input[2]]
        node.CopyFrom(helper.make_node("Resize", inputs, list(node.output), name=node.name))


_TOO_MANY = 1 << 63  # for a size


def range_count(start: Any, limit: Any, delta: Any) -> int | None:
    """How many numbers a Range of these arrays of one element has; None where that is no number.

    Of integers exactly; of floats in float64, their difference too, as onnxruntime counts them.
    """
    first, last, step = (np.asarray(one).reshape(-1)[0].item() for one in (start, limit, delta))
    if not step:
        return None
    if isinstance(step, float):
        exact = (last - first) / step
        count = ceil(exact) if isfinite(exact) else _TOO_MANY
    else:
        count = -((first - last) // step)
    return max(count, 0) if count < _TOO_MANY else None


def _count(node: NodeProto, known: Mapping[str, TensorProto]) -> int | None:
    """The length of a Range whose operands are known."""
    if not known.keys() >= set(node.input):
        return None
    operands = [numpy_helper.to_array(known[name]) for name in node.input]
    return range_count(*operands) if all(one.size == 1 for one in operands) else None


def _say_counts(model: ModelProto, counts: dict[int, int]) -> None:
    """The Ranges at these indices as nodes of so many elements and of their type."""
    nodes, types = list(model.graph.node), {t.name: t.data_type for t in model.graph.initializer}
    del model.graph.node[:]
    for index, node in enumerate(nodes):
        if index not in counts:
            model.graph.node.append(node)
            continue
        count, filled = (f"{node.output[0]}//{name}" for name in ("count", "filled"))
        model.graph.initializer.append(numpy_helper.from_array(np.array([counts[index]]), count))
        model.graph.node.append(helper.make_node("ConstantOfShape", [count], [filled]))
        model.graph.node.append(helper.make_node("Cast", [filled], node.output, to=types[node.input[0]]))


def _shape_of(model: ModelProto, known: Mapping[str, TensorProto], name: str) -> list[int]:
    """As far as graph inputs and initializers (``known``) say; [] where they do not."""
    if name in known:
        return list(known[name].dims)
    for info in model.graph.input:
        if info.name == name:
            return [dim.dim_value for dim in info.type.tensor_type.shape.dim]
    return []


def _pad_as_said(node: NodeProto, model: ModelProto, known: Mapping[str, TensorProto]) -> None:
    """Explicit pads for ``auto_pad``: as much as makes the data's length times the stride of the output's."""
    mode = next((a.s for a in node.attribute if a.name == "auto_pad"), b"")
    further = _attribute(node, "output_padding")
    if not mode.startswith(b"SAME") or not any(further):
        return
    kernel = _shape_of(model, known, node.input[1])[2:]
    if not all(kernel) or len(further) != len(kernel):
        return
    strides, dilations = (_attribute(node, name) or [1] * len(kernel) for name in ("strides", "dilations"))
    cut = [
        max(more + (k - 1) * d + 1 - s, 0)
        for more, k, d, s in zip(further, kernel, dilations, strides, strict=True)
    ]
    _drop(node, "auto_pad", "pads")
    node.attribute.append(helper.make_attribute("pads", [*cut, *[0] * len(cut)]))


def _expand(model: ModelProto, opset: int) -> None:
    """Nodes that inference gets through only as several others."""
    nodes = list(model.graph.node)
    spread = [_several(node, model, opset) for node in nodes]
    if any(len(several) > 1 for several in spread):
        del model.graph.node[:]
        model.graph.node.extend(node for several in spread for node in several)


def _several(node: NodeProto, model: ModelProto, opset: int) -> list[NodeProto]:
    if node.domain not in ("", "ai.onnx") or not node.output:
        return [node]
    first, second, sizes = (f"{node.output[0]}//{i}" for i in range(3))
    shape = _attribute(node, "output_shape") if node.op_type == "ConvTranspose" else []
    if shape:
        own = NodeProto()
        own.CopyFrom(node)
        own.output[0] = first
        _drop(own, "output_shape", "output_padding", "auto_pad", "pads")
        model.graph.initializer.append(numpy_helper.from_array(np.array([1, 1, *shape]), sizes))
        channels = helper.make_node("GlobalMaxPool", [first], [second])
        return [own, channels, helper.make_node("Expand", [second, sizes], list(node.output))]
    if node.op_type == "GatherND" and not any(_attribute(node, "batch_dims")):
        axes = [sizes] if opset >= _AXES_ARE_AN_INPUT else []
        if axes:
            model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.int64), sizes))
        more: dict[str, Any] = {} if axes else {"axes": [0]}
        return [
            helper.make_node("Unsqueeze", [node.input[1], *axes], [first], **more),
            helper.make_node("GatherND", [node.input[0], first], [second], name=node.name),
            helper.make_node("Squeeze", [second, *axes], list(node.output), **more),
        ]
    return [node]


_AXES_ARE_AN_INPUT = 13  # of Squeeze and Unsqueeze


def _drop(node: NodeProto, *names: str) -> None:
    kept = [a for a in node.attribute if a.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)


def _wrap(model: ModelProto, node: NodeProto, name: str, opset: int) -> None:
    body = NodeProto()
    body.CopyFrom(node)
    if not model.functions:
        model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
    inputs, outputs = [n for n in body.input if n], [n for n in body.output if n]
    imports = [onnx.helper.make_opsetid("", opset)]
    model.functions.append(helper.make_function(_DOMAIN, name, inputs, outputs, [body], imports))
    node.CopyFrom(helper.make_node(name, inputs, outputs, name=body.name, domain=_DOMAIN))


def _drop_empty_axes(node: NodeProto, empty: set[str]) -> None:
    if len(node.input) > 1 and node.input[1] in empty:
        del node.input[1:]
    for index, attribute in enumerate(node.attribute):
        if attribute.name == "axes" and not attribute.ints:
            del node.attribute[index]
            break


_EXACT = 1 << 22  # lengths of which float32 has all halves
_ONNX = ("", "ai.onnx")  # both names of its domain


def mend_resized(model: ModelProto, inferred: onnx.GraphProto) -> bool:
    """Says another scale to inference where it makes another length of one than onnxruntime: of the first
    such Resize or Upsample, since others may follow from it. Whether there was one."""
    resized = [n for n in model.graph.node if n.op_type in ("Resize", "Upsample") and n.domain in _ONNX]
    known: dict[str, list[int]] = {}
    for info in (*inferred.input, *inferred.value_info, *inferred.output) if resized else ():
        known[info.name] = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
    for node in resized:
        x, y, scales = known.get(node.input[0], []), known.get(node.output[0], []), _scales(node, model)
        axes = _attribute(node, "axes") or list(range(len(x)))
        if scales is None or len(scales) != len(axes) or len(x) != len(y) or not set(axes) <= _places(x):
            continue
        said: dict[int, float] = {}
        for i, axis in enumerate(axes):
            length = float(scales[i] * np.float32(x[axis]))
            if 0 <= length < _EXACT and 0 < x[axis] < _EXACT and 0 < y[axis] != int(length):
                said[i] = (int(length) + 0.5) / x[axis]
        if said:
            _say_scales(node, model, np.array([said.get(i, v) for i, v in enumerate(scales)], np.float32))
            return True
    return False


def _places(shape: list[int]) -> set[int]:
    """What may name a dimension."""
    return set(range(-len(shape), len(shape)))


def _scales(node: NodeProto, model: ModelProto) -> np.ndarray[Any, Any] | None:
    """float32, where they are known."""
    for attribute in node.attribute:
        if attribute.name == "scales":
            return np.asarray(attribute.floats, np.float32)
    name = node.input[1 if len(node.input) < 3 else 2] if len(node.input) > 1 else ""
    found = [t for t in model.graph.initializer if t.name == name and t.data_type == onnx.TensorProto.FLOAT]
    return numpy_helper.to_array(found[0]).reshape(-1) if found else None


def _say_scales(node: NodeProto, model: ModelProto, scales: np.ndarray[Any, Any]) -> None:
    for attribute in node.attribute:
        if attribute.name == "scales":
            attribute.floats[:] = scales.tolist()
            return
    name = f"{node.output[0]}//scales"
    model.graph.initializer.append(numpy_helper.from_array(scales, name))
    node.input[1 if len(node.input) < 3 else 2] = name
