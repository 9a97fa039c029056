# SPDX-License-Identifier: Apache-2.0
"""Sizes that a model or a caller names are checked before memory is taken: in a child with little."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onedispatch as od
from onedispatch.dispatch.base import limits
from onedispatch.dispatch.cli import app
from onedispatch.dispatch.frontend.importer import import_model

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def node(op: str, reads: str, writes: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, reads.split(), writes.split(), **attributes)


def model(
    *nodes: onnx.NodeProto,
    shape: list[int | str] | None = None,
    functions: list[onnx.FunctionProto] | None = None,
    **weights: np.ndarray,
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", FLOAT, [4] if shape is None else shape)
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(list(nodes), "g", [x], [helper.make_empty_tensor_value_info("y")], tensors)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10, functions=functions)


def relu(size: int) -> onnx.ModelProto:
    return model(node("Relu", "x", "y"), shape=[size])


def pooled(**attributes: Any) -> onnx.ModelProto:
    return model(node("MaxPool", "x", "y", **{"kernel_shape": [3, 3], **attributes}), shape=[1, 1, 4, 4])


def repeated(count: int) -> onnx.ModelProto:
    return model(node("Tile", "x n", "y"), n=np.int64([count]))


def filled(*shape: int) -> onnx.ModelProto:
    fill = node("ConstantOfShape", "n", "c")
    return model(fill, node("ReduceSum", "c", "s", keepdims=0), node("Add", "x s", "y"), n=np.int64(shape))


def multiplied(shape: list[int]) -> onnx.ModelProto:
    """The size is known only after a wave of folding: shape inference does not follow Pow."""
    nodes = [node("Pow", "a b", "n"), node("Expand", "one n", "c"), node("ReduceSum", "c", "s", keepdims=0)]
    weights = {"a": np.int64(shape), "b": np.int64(3), "one": np.float32([1])}
    return model(*nodes, node("Add", "x s", "y"), **weights)


def ranged(limit: int) -> onnx.ModelProto:
    numbers = [node("Range", "zero limit one", "r"), node("ReduceSum", "r", "s", keepdims=0)]
    values = {"zero": np.float32(0), "limit": np.float32(limit), "one": np.float32(1)}
    return model(*numbers, node("Add", "x s", "y"), **values)


def resized(scale: float) -> onnx.ModelProto:
    scales = np.float32([1, 1, scale, scale])
    return model(helper.make_node("Resize", ["x", "", "s"], ["y"]), shape=[1, 1, 4, 4], s=scales)


def padded(count: int) -> onnx.ModelProto:
    return model(node("Pad", "x p", "y"), p=np.int64([0, count]))


def sparse(size: int) -> onnx.ModelProto:
    proto = model(node("Add", "x w", "y"))
    indices, values = (
        numpy_helper.from_array(np.int64([0]), "i"),
        numpy_helper.from_array(np.float32([1]), "w"),
    )
    proto.graph.sparse_initializer.append(SparseTensorProto(values=values, indices=indices, dims=[size]))
    return proto


def hollow(size: int) -> onnx.ModelProto:
    """An initializer that names a size and has no data."""
    proto = model(node("Add", "x w", "y"))
    proto.graph.initializer.append(TensorProto(name="w", data_type=FLOAT, dims=[size]))
    return proto


def nested_calls(depth: int, calls: int = 2) -> onnx.ModelProto:
    """Functions that call the next one ``calls`` times: calls**depth nodes once they are inlined."""
    functions = []
    for level in range(depth):
        inner = f"F{level + 1}" if level + 1 < depth else "Relu"
        domain = "own" if level + 1 < depth else ""
        names = ["a", *(f"t{i}" for i in range(calls - 1)), "b"]
        body = [helper.make_node(inner, [p], [q], domain=domain) for p, q in itertools.pairwise(names)]
        functions.append(helper.make_function("own", f"F{level}", ["a"], ["b"], body, OPSETS))
    return model(node("F0", "x", "y", domain="own"), functions=functions)


def big_calls(depth: int) -> onnx.ModelProto:
    """Few nodes that carry much: the tensor is copied with every call."""
    proto = nested_calls(depth)
    body = proto.functions[-1].node
    body.append(node("Constant", "", "w", value=numpy_helper.from_array(np.zeros(1 << 18, np.float32))))
    return proto


def big_argument(depth: int) -> onnx.ModelProto:
    """An attribute that every node of the expansion takes from the call."""
    proto = nested_calls(depth)
    for function in proto.functions:
        function.attribute.append("alpha")
        for call in function.node:
            call.op_type = "LeakyRelu" if not call.domain else call.op_type
            call.attribute.add(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.TENSOR)
    value = numpy_helper.from_array(np.zeros(1 << 18, np.float32))
    proto.graph.node[0].attribute.append(helper.make_attribute("alpha", value))
    return proto


def recursive() -> onnx.ModelProto:
    proto = nested_calls(3)
    proto.functions[-1].node[0].op_type, proto.functions[-1].node[0].domain = "F1", "own"
    return proto


def nested_ifs(depth: int) -> onnx.ModelProto:
    inner = node("Relu", "x", "t")
    for level in range(depth):
        outs = [helper.make_tensor_value_info(inner.output[0], FLOAT, [4])]
        branch = helper.make_graph([inner], "b", [], outs)
        outs = [helper.make_tensor_value_info("e", FLOAT, [4])]
        other = helper.make_graph([node("Neg", "x", "e")], "e", [], outs)
        inner = node("If", "c", f"t{level}", then_branch=branch, else_branch=other)
    inner.output[0] = "y"
    return model(inner, c=np.array(True))


def scaled_shape(factor: int) -> onnx.ModelProto:
    nodes = [node("Shape", "x", "s"), node("Mul", "s f", "n"), node("ConstantOfShape", "n", "c")]
    nodes += [node("Add", "c c", "d"), node("Concat", "d d", "e", axis=0), node("ReduceSum", "e", "r")]
    return model(*nodes, node("Add", "x r", "y"), f=np.int64([factor]))


def doubled(times: int) -> onnx.ModelProto:
    """x of 4 elements, joined with itself over and over."""
    names = ["x", *(f"t{i}" for i in range(times - 1)), "y"]
    return model(*(helper.make_node("Concat", [a, a], [b], axis=0) for a, b in itertools.pairwise(names)))


def long_name(count: int) -> onnx.ModelProto:
    proto = relu(4)
    proto.graph.node[0].name = "n" * count
    return proto


def ranks(count: int) -> onnx.ModelProto:
    return model(node("ConstantOfShape", "n", "c"), node("Add", "x c", "y"), n=np.ones(count, np.int64))


def typed(depth: int) -> onnx.ModelProto:
    proto = relu(4)
    kind = proto.graph.value_info.add(name="v").type
    for _ in range(depth):
        kind = kind.sequence_type.elem_type
    kind.tensor_type.elem_type = FLOAT
    return proto


def many(count: int) -> onnx.ModelProto:
    proto = relu(4)
    proto.graph.node.extend([proto.graph.node[0]] * count)
    return proto


# What is refused, and the words of the limit that says so.
HOSTILE: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "input of 2^34": (lambda: relu(1 << 34), "bytes in one tensor"),
    "input of 2^62": (lambda: relu(1 << 62), "bytes in one tensor"),
    "input of 2^63-1": (lambda: relu((1 << 63) - 1), "bytes in one tensor"),
    "pads": (lambda: pooled(pads=[1 << 32] * 4), "in a pad"),
    "pads with strides": (lambda: pooled(pads=[1 << 32] * 4, strides=[1 << 32] * 2), "in a pad"),
    "negative pads": (lambda: pooled(pads=[-(1 << 62)] * 4), "in a pad"),
    "kernel": (lambda: pooled(kernel_shape=[1 << 40, 3], pads=[1, 1, 1, 1]), "kernel"),
    "dilations": (lambda: pooled(dilations=[1 << 40, 1]), "dilation"),
    "Tile": (lambda: repeated(1 << 40), "bytes in one tensor"),
    "Pad": (lambda: padded(1 << 40), "bytes in one tensor"),
    "Resize": (lambda: resized(1e5), "bytes in one tensor"),
    "ConstantOfShape": (lambda: filled(1 << 20, 1 << 20), "bytes in one tensor"),
    "much folded": (lambda: filled((1 << 28) + (1 << 27)), "bytes computed from constants"),
    "Expand behind Pow": (lambda: multiplied([1 << 14]), "bytes in one tensor"),
    "Range": (lambda: ranged(1 << 40), "bytes in one tensor"),
    "Concat": (lambda: doubled(60), "bytes in one tensor"),
    "behind Shape": (lambda: scaled_shape(1 << 56), "bytes in one tensor"),
    "sparse": (lambda: sparse(1 << 40), "bytes in one tensor"),
    "hollow initializer": (lambda: hollow(1 << 40), "bytes of constants"),
    "calls": (lambda: nested_calls(30), "nodes in one model"),
    "many calls": (lambda: nested_calls(4, 40), "nodes in one model"),
    "heavy calls": (lambda: big_calls(12), "functions inlined"),
    "heavy arguments": (lambda: big_argument(12), "functions inlined"),
    "recursion": (recursive, "a call of itself"),
    "subgraphs": (lambda: nested_ifs(28), "levels of subgraphs"),
    "names": (lambda: long_name(1 << 20), "characters in a name"),
    "rank of an edge": (lambda: ranks(65), "dimensions in one tensor"),
    "types": (lambda: typed(20), "levels of sequences"),
    "nodes": (lambda: many(limits.NODES.most), "nodes in one model"),
}

CHILD = """
import resource, sys
import onedispatch as od
from onedispatch.dispatch.driver import compile_model
from onedispatch.dispatch.frontend import importer
import onnxruntime
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
for name in sys.argv[1:]:
    try:
        od.compile(name)
        print("accepted")
    except od.ModelError as error:
        print(" ".join(str(error).split()))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - used
    assert grown < 1 << 29, (name, grown)
"""


def test_hostile_models_are_refused_with_little_memory(tmp_path: Path) -> None:
    """All in one child: its memory may not grow by more than half a GiB, nor may it hang."""
    paths = []
    for index, (make, _) in enumerate(HOSTILE.values()):
        path = tmp_path / f"{index}.onnx"
        path.write_bytes(make().SerializeToString())
        paths.append(str(path))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *paths], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(HOSTILE), done.stdout
    for (name, (_, words)), line in zip(HOSTILE.items(), lines, strict=True):
        assert words in line, (name, line)
        assert words == "a call of itself" or "at most" in line, (name, line)
        assert len(line) < 600, name


@pytest.mark.parametrize("size", [1 << 34, 1 << 62])
def test_sizes_that_the_caller_names(size: int) -> None:
    proto = model(node("Relu", "x", "y"), shape=["N"])
    with pytest.raises(od.InputError, match=r"input 'x'.*bytes in one tensor.*at most 2,147,483,648"):
        od.compile(proto, shapes={"x": [size]})


def test_sizes_that_values_of_inputs_name() -> None:
    k = helper.make_tensor_value_info("k", INT64, [1])
    proto = model(node("Expand", "x k", "y"), shape=[1])
    proto.graph.input.append(k)
    session = od.InferenceSession(proto)
    feed = {"x": np.ones(1, np.float32)}
    with pytest.raises(od.ModelError, match=r"Expand.*bytes in one tensor"):
        session.run(None, feed | {"k": np.int64([1 << 40])})
    assert session.run(None, feed | {"k": np.int64([3])})[0].shape == (3,)


@pytest.mark.parametrize(
    "make",
    [
        lambda: relu(1 << 27),  # half a GiB
        lambda: repeated(1 << 25),
        lambda: filled(1 << 20),
        lambda: ranged(1 << 16),
        lambda: pooled(pads=[2, 2, 2, 2]),
        lambda: nested_calls(8),
        lambda: doubled(23),
        lambda: nested_ifs(8),
        lambda: long_name(2000),
        lambda: ranks(5),
    ],
)
def test_ordinary_sizes_stay_accepted(make: Callable[[], onnx.ModelProto]) -> None:
    assert od.compile(make()).executables


def test_weights_of_many_functions_are_counted_once_per_call() -> None:
    assert import_model(nested_calls(10)).nodes[0].op_type == "Relu"
    assert len(import_model(nested_calls(10)).nodes) == 1024


def test_buffers_of_the_device_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    small = limits.Limit("byte", "in the device's buffers", 1 << 12, "use a smaller batch")
    monkeypatch.setattr(limits, "BUFFER_BYTES", small)
    with pytest.raises(od.ModelError, match="bytes in the device's buffers"):
        od.compile(relu(1 << 12))


def test_buffers_that_a_file_names(tmp_path: Path) -> None:
    compiled = od.compile(relu(4))
    ((key, executable),) = compiled.executables.items()
    (step,) = executable.device_steps
    compiled.executables[key] = replace(executable, steps=(replace(step, sizes=(1 << 50, *step.sizes[1:])),))
    compiled.save(tmp_path / "m.od")
    with pytest.raises(od.CompiledModelError, match="bytes in the device's buffers"):
        od.load(tmp_path / "m.od")


def test_random_values_for_a_size_that_the_command_line_names(tmp_path: Path) -> None:
    od.compile(model(node("Relu", "x", "y"), shape=["N"])).save(tmp_path / "m.od")
    arguments = ["run", str(tmp_path / "m.od"), "--random", "--shape", f"x={1 << 40}"]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, od.InputError) and "bytes in one tensor" in str(result.exception)
