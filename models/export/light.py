# SPDX-License-Identifier: Apache-2.0
"""Networks without their weights: kilobytes instead of megabytes, for tests that draw weights themselves.

As in the light models of the onnx package, a ConstantOfShape stands where a weight was, so that
``onedispatch.dispatch.tools.zoo.randomised`` gives it seeded values of sane scale. Small tables stay what
they are, as Constants.
"""

from __future__ import annotations

import onnx
from onnx import ModelProto, TensorProto, helper

KEPT = 64  # elements: tables that a network computes with are small, or not floating-point


def without_weights(model: ModelProto) -> ModelProto:
    """A copy whose larger float initializers are made by nodes, without what exporters note of sources."""
    light = ModelProto()
    light.CopyFrom(model)
    graph = light.graph
    floats = [t for t in graph.initializer if t.data_type == TensorProto.FLOAT]
    kept = [t for t in graph.initializer if t.data_type != TensorProto.FLOAT]
    weights = [t for t in floats if _size(t) > KEPT]
    tables = [t for t in floats if _size(t) <= KEPT]
    nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in tables]
    nodes += [_bare(node) for node in graph.node]
    shapes = {tuple(t.dims): f"shape_{'x'.join(map(str, t.dims))}" for t in weights}
    kept += [helper.make_tensor(name, TensorProto.INT64, [len(s)], s) for s, name in shapes.items()]
    made = [helper.make_node("ConstantOfShape", [shapes[tuple(t.dims)]], [t.name]) for t in weights]
    del graph.initializer[:], graph.node[:], graph.value_info[:], light.metadata_props[:]
    del graph.metadata_props[:]
    for value in (*graph.input, *graph.output):
        del value.metadata_props[:]
    graph.initializer.extend(kept)
    graph.node.extend([*made, *nodes])
    graph.doc_string = light.doc_string = ""
    return light


def _size(tensor: TensorProto) -> int:
    size = 1
    for length in tensor.dims:
        size *= length
    return size


def _bare(node: onnx.NodeProto) -> onnx.NodeProto:
    del node.metadata_props[:]
    node.doc_string = ""
    return node
