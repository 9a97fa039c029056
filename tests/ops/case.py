# SPDX-License-Identifier: Apache-2.0
"""One operator test case: an ONNX node, its data, and how close the answer has to be.

``case("Conv", f32(1, 3, 9, 9), weight(4, 3, 3, 3), pads=[1, 1, 1, 1])`` is a whole case. The
expected answer is onnxruntime's, computed when the test runs, with its graph rewrites off.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from onedispatch.operators.declarations.dtypes import dtype_of
from onedispatch.operators.declarations.functions import ACTIVATIONS
from onedispatch.operators.declarations.registry import all_mappings
from onedispatch.transactions.base.cached import cached_property

Array = np.ndarray[Any, Any]
OPSET = 21

# Every operator that is registered: the table has cases of each, onnx's node tests cover each.
OPERATORS = frozenset(mapping.op_type for mapping in all_mappings() if not mapping.domain)

# Sums see no huge values: where those overflow depends on the order of summation.
NONFINITE = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40, 1.0)
MIXES = {
    "nonfinite": NONFINITE,
    "special": (*NONFINITE, 3.4e38, -3.4e38),
    "nan": (np.nan,),
    "infinite": (np.inf, -np.inf, -0.0, 0.0, 1e-40, 3.4e38, -3.4e38),
}


@dataclass(frozen=True)
class Input:
    """An input of the node. ``kind`` says how its data is drawn; ``const`` makes it an initializer."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    kind: str = "normal"  # normal, positive, near one, wide, one of MIXES, integer, small; or "value"
    const: bool = False
    value: Any = None

    def data(self, rng: np.random.Generator) -> Array:
        dtype = np.dtype(self.dtype)
        if self.kind == "value":
            values = np.asarray(self.value).reshape(-1).tolist()
            if dtype.kind in "iu":  # of a case in a narrower type: the number nearest to it
                least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
                values = [min(max(v, least), most) for v in values]
            return np.asarray(values, dtype).reshape(self.shape)
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            if self.kind == "small":
                return rng.integers(max(info.min, -3), 3, self.shape, endpoint=True).astype(dtype)
            low = 1 if self.kind == "positive" else max(info.min, -1 << 20)
            high = min(info.max, 1 << 20)
            return rng.integers(low, high, self.shape, dtype=np.int64, endpoint=True).astype(dtype)
        if dtype.kind == "b":
            falses = 0.1 if self.kind == "positive" else 0.5
            return np.asarray(rng.random(self.shape) >= falses, dtype)
        array = np.asarray(rng.standard_normal(self.shape), dtype)
        if self.kind == "positive":
            array = np.asarray(np.abs(array) + dtype.type(0.25))
        elif self.kind == "near one":  # products of many of them are still numbers
            array = np.asarray(1 + array / dtype.type(16))
        elif self.kind == "wide":  # the whole range in which exp, tanh and their kin do something
            array = np.asarray(array * dtype.type(12))
        elif self.kind in MIXES and array.size:
            mixed = np.array(MIXES[self.kind], dtype)
            flat = array.reshape(-1)
            at = rng.permutation(flat.size)[: max(1, flat.size // 3)]
            flat[at] = np.resize(mixed, at.size)
        return array


def f32(*shape: int, kind: str = "normal") -> Input:
    """A float32 input that is known when the model runs."""
    return Input(shape, kind=kind)


def weight(*shape: int, kind: str = "normal") -> Input:
    """A float32 constant of the model."""
    return Input(shape, kind=kind, const=True)


def integers(dtype: str, *shape: int, const: bool = False) -> Input:
    return Input(shape, dtype, "integer", const)


def value(given: Any, dtype: str = "float32", const: bool = True) -> Input:
    """An input with this value, constant unless said otherwise."""
    array = np.asarray(given, dtype)
    return Input(array.shape, dtype, "value", const, array.tolist())


@dataclass(frozen=True)
class Tolerance:
    """How far an element may be off: ``ulp`` units in its own last place, ``scale`` times the
    largest expected magnitude where sums cancel, or ``absolute``; the widest of them counts.
    All zero: equal (0 == -0). NaN and infinities must be where onnxruntime has them, always.
    """

    ulp: int = 0
    scale: float = 0.0
    absolute: float = 0.0


EXACT = Tolerance()
# Sums of products in another order: about sqrt(K) roundings of 6e-8 of the largest partial sum.
SUMS = Tolerance(scale=2.5e-6)
TOLERANCES: dict[str, Tolerance] = {
    "MatMul": SUMS,
    "Gemm": SUMS,
    "Conv": SUMS,
    "Sum": Tolerance(ulp=1),  # onnxruntime may add three inputs in one rounding
    "LeakyRelu": EXACT,
    "Sigmoid": Tolerance(absolute=2e-7),  # onnxruntime approximates, to 2e-7 of the range [0, 1]
    "Tanh": Tolerance(absolute=3e-7),  # its tanh reaches 1.0000001
    "Erf": Tolerance(absolute=2e-7),
    "Exp": Tolerance(ulp=4),
    "AveragePool": Tolerance(scale=5e-7),
    "GlobalAveragePool": Tolerance(scale=1e-6),
    "BatchNormalization": Tolerance(scale=1e-6, absolute=5e-7),  # x * scale and shift may cancel
    "LRN": Tolerance(scale=3e-6),  # onnxruntime carries a running sum over the channels
    "Log": Tolerance(ulp=2, absolute=1e-7),  # near 1 the logarithm is what is left of a rounding
    "LogSoftmax": Tolerance(scale=1e-6, absolute=5e-7),  # the largest is the difference of two numbers
    "ReduceMean": Tolerance(scale=1e-6, absolute=2e-6),  # of either sign: sums cancel
    "ReduceProd": Tolerance(ulp=16),  # a rounding per factor
    "ReduceSum": Tolerance(scale=2.5e-6, absolute=2e-5),
    "ReduceSumSquare": Tolerance(scale=2.5e-6),
    "Softmax": Tolerance(scale=5e-7),
}
# Functions of the table say themselves how far they may be off.
DECLARED = {row.onnx: Tolerance(ulp=row.ulp, absolute=row.absolute) for row in ACTIVATIONS.rows if row.onnx}


@dataclass(frozen=True)
class Case:
    """One node and what runs it."""

    op_type: str
    inputs: tuple[Input | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = OPSET
    device: str = "npu2"
    domain: str = ""
    outputs: int = 1
    tolerance: Tolerance | None = None
    note: str = ""
    # Type and shape of the results, of another domain, where they are not the first input's; of several
    # results one for each, None of one that the node leaves out.
    result: Input | tuple[Input | None, ...] | None = None
    answer: Any = None  # what to expect where onnxruntime is wrong or has no such operator

    @cached_property
    def id(self) -> str:
        """Readable, unique by shapes, attributes, opset and device."""
        parts = [self.op_type]
        for x in self.inputs:
            if x is None:
                parts.append("none")
                continue
            text = "x".join(map(str, x.shape)) or "scalar"
            text += {"float32": ""}.get(x.dtype, f":{x.dtype}")
            text += f":{x.kind}" if x.kind not in ("normal", "integer") else ""
            parts.append(text + ("c" if x.const else ""))
        for key, given in sorted(self.attributes.items()):
            listed = isinstance(given, list | tuple | np.ndarray)
            text = ",".join(map(str, given)) if listed else str(given)
            parts.append(f"{key}={text}")
        parts += [f"opset{self.opset}"] if self.opset != OPSET else []
        parts += [self.device] if self.device != "npu2" else []
        parts += [self.note] if self.note else []
        return "-".join(parts)

    @cached_property
    def arrays(self) -> list[Array | None]:
        """The data of every input, from a generator seeded by the case's name."""
        rng = np.random.default_rng(zlib.crc32(self.id.encode()))
        return [None if x is None else x.data(rng) for x in self.inputs]

    @cached_property
    def feed(self) -> dict[str, Array]:
        """Model inputs by name: what is not constant."""
        pairs = zip(self.inputs, self.arrays, strict=True)
        return {
            f"x{i}": a for i, (x, a) in enumerate(pairs) if x is not None and a is not None and not x.const
        }

    @cached_property
    def expected(self) -> list[Array]:
        """onnxruntime's answer, or the one that the case states."""
        if self.answer is not None:
            return [np.asarray(self.answer)]
        return run_onnxruntime(self.model, self.feed)

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The model with this node alone."""
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self.inputs)]
        outputs = [f"y{i}" for i in range(self.outputs)]
        if isinstance(self.result, tuple):
            outputs = [f"y{i}" if one is not None else "" for i, one in enumerate(self.result)]
        given = {
            key: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v
            for key, v in self.attributes.items()
        }
        node = helper.make_node(self.op_type, names, outputs, name="node", domain=self.domain, **given)
        infos, constants = [], []
        for i, (x, array) in enumerate(zip(self.inputs, self.arrays, strict=True)):
            if x is None or array is None:
                continue
            if x.const:
                constants.append(numpy_helper.from_array(array, f"x{i}"))
            else:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                infos.append(helper.make_tensor_value_info(f"x{i}", kind, array.shape))
        return single_model([node], infos, outputs, constants, self.opset, self.domain, self.result)

    @property
    def allowed(self) -> Tolerance:
        return self.tolerance or TOLERANCES.get(self.op_type) or DECLARED.get(self.op_type, EXACT)

    def on(self, *devices: str) -> list[Case]:
        """The same case on other devices."""
        return [replace(self, device=device) for device in devices]


def case(op_type: str, *inputs: Input | None, tolerance: Tolerance | None = None, **attributes: Any) -> Case:
    """A case; some keywords are fields of it, the others are the node's attributes."""
    own = {
        key: attributes.pop(key)
        for key in ("opset", "device", "outputs", "note", "domain", "answer", "result")
        if key in attributes
    }
    return Case(op_type, inputs, attributes, tolerance=tolerance, **own)


def single_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    constants: Sequence[onnx.TensorProto] = (),
    opset: int = OPSET,
    domain: str = "",
    result: Input | tuple[Input | None, ...] | None = None,
) -> onnx.ModelProto:
    """A checked model; types and shapes of the outputs are inferred."""
    # onnx infers nothing of these: as their first input. GroupNormalization 18 is withdrawn, others are
    # onnxruntime's alone.
    known = onnx.defs.has(nodes[-1].op_type, domain)
    untyped = {"GroupNormalization"} | (set() if known else {nodes[-1].op_type})
    made = [
        onnx.ValueInfoProto(name=name, type=inputs[0].type)
        if nodes[-1].op_type in untyped or domain
        else onnx.ValueInfoProto(name=name)
        for name in outputs
    ]
    if result is not None:
        several = result if isinstance(result, tuple) else [result] * len(outputs)
        kinds = [(one.shape, helper.np_dtype_to_tensor_dtype(np.dtype(one.dtype))) for one in several if one]
        named = [name for name in outputs if name]
        made = [
            helper.make_tensor_value_info(name, kind, shape)
            for name, (shape, kind) in zip(named, kinds, strict=True)
        ]
    graph = helper.make_graph(list(nodes), "case", list(inputs), made, list(constants))
    opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    if nodes[-1].op_type not in untyped or (known and opset >= OPSET):
        onnx.checker.check_model(model)
    return model


def run_onnxruntime(model: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    """All outputs of ``model``, node by node as written."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(y) for y in session.run(None, feed)]


def check(actual: Array, expected: Array, allowed: Tolerance) -> None:
    """Asserts that ``actual`` is ``expected`` within ``allowed``; says where it is worst."""
    assert actual.dtype == expected.dtype, f"{actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"{actual.shape}, expected {expected.shape}"
    if not expected.size:
        return
    row = dtype_of(expected.dtype)  # none of float64, which the host computes
    if not (expected.dtype.kind == "f" if row is None else row.is_float):
        _report(actual.reshape(-1), expected.reshape(-1), actual.reshape(-1) != expected.reshape(-1), "")
        return
    a, e = actual.reshape(-1), expected.reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):  # infinities and NaN have none
        place = np.abs(np.spacing(e)).astype(np.float64)  # a unit in the last place of each
    a, e = (x if x.dtype.kind == "f" else x.astype(np.float32) for x in (a, e))
    _report(a, e, np.isnan(a) != np.isnan(e), "NaN in other places")
    _report(a, e, np.isinf(e) & (a != e) | np.isinf(a) & (a != e), "other infinities")
    finite = np.isfinite(e)
    difference = np.zeros(e.shape, np.float64)
    difference[finite] = np.abs(a[finite].astype(np.float64) - e[finite].astype(np.float64))
    bound = np.full(e.shape, allowed.absolute, np.float64)
    if allowed.ulp:
        bound[finite] = allowed.absolute + allowed.ulp * place[finite]
    if finite.any():
        bound = np.maximum(bound, allowed.scale * float(np.abs(e[finite]).max()))
    _report(a, e, difference > bound, f"beyond {allowed}")


def _report(a: Array, e: Array, wrong: Array, what: str) -> None:
    if not wrong.any():
        return
    with np.errstate(all="ignore"):
        off = np.abs(np.subtract(a, e, dtype=np.float64))
    worst = int(np.argmax(np.where(wrong, np.nan_to_num(off, nan=np.inf), -1)))
    raise AssertionError(
        f"{int(wrong.sum())} of {wrong.size} elements {what or 'differ'}; worst at flat index {worst}: "
        f"{a[worst]!r}, expected {e[worst]!r}; first at {int(np.argmax(wrong))}"
    )


def check_beside_onnxruntime(
    model: onnx.ModelProto, feed: dict[str, Array], results: Sequence[Array], precision: str
) -> None:
    """Asserts that floats are onnxruntime's, as far as the precision goes, by the largest of each tensor."""
    close = {"fp32": 1e-5, "bf16": 0.05}[precision]
    for made, wanted in zip(results, run_onnxruntime(model, feed), strict=True):
        least = close * float(np.abs(wanted).max(initial=0))
        np.testing.assert_allclose(made, wanted, rtol=close, atol=least)
