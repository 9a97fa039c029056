# SPDX-License-Identifier: Apache-2.0
"""Operands that decide the shape of a result or which elements it takes, by operator.

They are structure, no data: sizes, axes, pads, starts and steps. An executable is compiled for
their values, as it is for the shapes of its inputs. Every other operand is data.
"""

from __future__ import annotations

from onedispatch.dispatch.frontend.graph import Graph, Node

# op_type -> input positions.
_SHAPE_OPERANDS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "ReduceL1": (1,),
    "ReduceL2": (1,),
    "ReduceLogSum": (1,),
    "ReduceLogSumExp": (1,),
    "ReduceMax": (1,),
    "ReduceMean": (1,),
    "ReduceMin": (1,),
    "ReduceProd": (1,),
    "ReduceSum": (1,),
    "ReduceSumSquare": (1,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1, 2),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}

# Some of these enter the elements of the result too: for them the operand is also data.
_ALSO_DATA: dict[str, tuple[int, ...]] = {
    "BlackmanWindow": (0,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MelWeightMatrix": (0, 1),
    "Range": (0, 1, 2),
}

# What integers that become shapes are computed with.
_SHAPE_ARITHMETIC = frozenset(
    "Abs Add Cast Ceil Concat Div Equal Expand Floor Gather Greater Identity Less Max Min Mod "
    "Mul Neg Not Range ReduceProd ReduceSum Reshape Slice Squeeze Sub Unsqueeze Where".split()
)


def shape_positions(node: Node) -> tuple[int, ...]:
    """Positions of the inputs whose values decide the output's shape; they are all given."""
    positions = () if node.domain else _SHAPE_OPERANDS.get(node.op_type, ())
    return tuple(i for i in positions if i < len(node.inputs) and node.inputs[i])


def data_positions(node: Node) -> tuple[int, ...]:
    """Those of ``shape_positions`` whose values also enter the elements of the result."""
    also = () if node.domain else _ALSO_DATA.get(node.op_type, ())
    return tuple(i for i in shape_positions(node) if i in also)


def shape_operands(node: Node) -> tuple[str, ...]:
    """The inputs of a node whose values decide its output's shape."""
    return tuple(node.inputs[i] for i in shape_positions(node))


def data_operands(node: Node) -> frozenset[str]:
    """What a node reads as data, captures of its subgraphs included."""
    only_shapes = set(shape_positions(node)).difference(data_positions(node))
    read = {name for i, name in enumerate(node.inputs) if name and i not in only_shapes}
    return frozenset(read.union(node.captured))


def deciding_inputs(graph: Graph) -> frozenset[str]:
    """Graph inputs whose values decide shapes, straight or through integer arithmetic."""
    direct = {name for node in graph.nodes for name in shape_operands(node)}
    inputs = {v.name: v.dtype for v in graph.inputs}
    found = set()
    for name in operand_cone(graph).intersection(inputs):
        dtype = inputs[name]
        if dtype is not None and (name in direct or dtype.kind in "iub"):
            found.add(name)
    return frozenset(found)


def operand_cone(graph: Graph) -> frozenset[str]:
    """Values that reach a shape operand through shape arithmetic."""
    producers = {name: node for node in graph.nodes for name in node.writes}
    pending = [name for node in graph.nodes for name in shape_operands(node)]
    cone: set[str] = set()
    while pending:
        name = pending.pop()
        if name in cone:
            continue
        cone.add(name)
        if name in producers and producers[name].op_type in _SHAPE_ARITHMETIC:
            pending += producers[name].reads
    return frozenset(cone)
