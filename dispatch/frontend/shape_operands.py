# SPDX-License-Identifier: Apache-2.0
"""Shape operands: inputs whose values an executable is compiled for, by operator.

Sizes, repeats, bounds and axes are structure: the shape of the result follows from them. So is the condition
of an If, which says what nodes there are. An executable is compiled for their values, as it is for the shapes
of its inputs. ``decided.py`` says which values that are known only at run time may be shape operands. Every
other operand is data, which the device reads. Layers name theirs: ``host_inputs``.
"""

from __future__ import annotations

from onedispatch.dispatch.frontend.graph import Graph, Node
from onedispatch.operators.declarations.registry import custom_mapping

Positions = dict[str, tuple[int, ...]]

# op_type -> input positions whose values the result's shape is computed from.
_SIZES: Positions = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "DFT": (1,),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1),
    "OneHot": (1,),
    "Pad": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Tile": (1, 2),
    "TopK": (1,),
    "Upsample": (1,),
}

# op_type -> input positions that name axes.
_AXES: Positions = {
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (2,),
    "Pad": (3,),
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
    "Slice": (3,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
}

# op_type -> input positions that say which nodes run.
_CHOICES: Positions = {"If": (0,)}

# Values that a transaction may be compiled for where they are constant. No shape follows from them, so at
# run time they are data: which region is resized, which diagonal a triangle ends at.
_CONSTANT_OR_DATA: Positions = {"Resize": (1,), "Trilu": (1,)}

# Some sizes enter the elements of the result too: for these operators the operand is also data.
_ALSO_DATA: Positions = {
    "BlackmanWindow": (0,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MelWeightMatrix": (0, 1),
    "Range": (0, 1, 2),
}

# What converts and computes shape operands, as quantisers leave it, too: bfloat16 must not round on the way.
_SHAPE_ARITHMETIC = frozenset(
    "Abs Add Cast Ceil Clip Concat ConstantOfShape DequantizeLinear Div Equal Expand Floor Gather Greater "
    "Identity Less Max Min Mod Mul Neg Not QuantizeLinear Range ReduceProd ReduceSum Reshape Round Slice "
    "Split Sqrt Squeeze Sub Tile Transpose Unsqueeze Where".split()
)


def _given(node: Node, *tables: Positions) -> tuple[int, ...]:
    """Positions of a node's inputs that ``tables`` list and that are there, in ascending order."""
    if node.domain:
        own = custom_mapping(node) if _SIZES in tables else None
        listed = () if own is None else own.plugin.host_inputs
    else:
        listed = tuple(sorted(i for table in tables for i in table.get(node.op_type, ())))
    return tuple(i for i in listed if i < len(node.inputs) and node.inputs[i])


def size_positions(node: Node) -> tuple[int, ...]:
    """Positions of the inputs whose values the result's shape is computed from."""
    return _given(node, _SIZES)


def named_positions(node: Node) -> tuple[int, ...]:
    """Positions of the inputs that name axes, or a branch: the caller may say them."""
    return _given(node, _AXES, _CHOICES)


def branch_positions(node: Node) -> tuple[int, ...]:
    """Of these, those that name a branch, which alone may be computed in a run."""
    return _given(node, _CHOICES)


def shape_positions(node: Node) -> tuple[int, ...]:
    """Positions of the shape operands: ``size_positions`` and ``named_positions``."""
    return _given(node, _SIZES, _AXES, _CHOICES)


def compiled_positions(node: Node) -> tuple[int, ...]:
    """``shape_positions``, and those whose values are compiled in where they are constant."""
    return _given(node, _SIZES, _AXES, _CHOICES, _CONSTANT_OR_DATA)


def data_positions(node: Node) -> tuple[int, ...]:
    """Those of ``shape_positions`` whose values also enter the elements of the result."""
    return _given(node, _ALSO_DATA)


def shape_operands(node: Node) -> tuple[str, ...]:
    """The inputs of a node at ``shape_positions``."""
    return tuple(node.inputs[i] for i in shape_positions(node))


def data_operands(node: Node) -> frozenset[str]:
    """What a node reads as data, captures of its subgraphs included."""
    only_shapes = set(shape_positions(node)).difference(data_positions(node))
    read = {name for i, name in enumerate(node.inputs) if name and i not in only_shapes}
    return frozenset(read.union(node.captured))


def operand_cone(graph: Graph) -> frozenset[str]:
    """Values that reach an operand of ``compiled_positions`` through arithmetic of shapes."""
    producers = {name: node for node in graph.nodes for name in node.writes}
    pending = [node.inputs[i] for node in graph.nodes for i in compiled_positions(node)]
    cone: set[str] = set()
    while pending:
        name = pending.pop()
        if name in cone:
            continue
        cone.add(name)
        if name in producers and producers[name].op_type in _SHAPE_ARITHMETIC:
            pending += producers[name].reads
    return frozenset(cone)
