# SPDX-License-Identifier: Apache-2.0
"""What methods of a custom kernel are handed, and nodes that do not agree with its declaration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onedispatch.operators.declarations.kernel import Scalar
from onedispatch.operators.declarations.tensor import NodeSpec, Quantisation, TensorSpec
from onedispatch.operators.plugin.custom_kernel import CustomKernel
from onedispatch.operators.plugin.instance import Interval
from onedispatch.operators.plugin.node import Made, Node
from onedispatch.operators.plugin.operands import Aux, In, Out, Scratch
from onedispatch.transactions import find_device
from onedispatch.transactions.base.errors import KernelError

DECLARED = CustomKernel(
    "acme::k",
    (In("x", "f32 i8", rank=(1, 3), pad=0), In("y", like="x", optional=True)),
    (Out("z", like="x"),),
    scalars=(Scalar("a", "f32"), Scalar("n", "i32", low=-4, high=4, default=1)),
    aux=(Aux("table", "i8"), Aux("recip")),
    scratch_tensors=(Scratch("tmp"),),
)


ABSENT = "attribute 'a', a number (it has no default)"


def tensor(name: str, *shape: int, dtype: Any = np.float32, **more: Any) -> TensorSpec:
    return TensorSpec(name, np.dtype(dtype), shape, **more)


def node(
    *inputs: Any, declared: CustomKernel = DECLARED, outputs: int = 1, renamed: Any = None, **attributes: Any
) -> Node:
    made = [tensor(f"out{i}", 1) for i in range(outputs)]
    spec = NodeSpec("n0", "K", "acme", 1, inputs, made, {"a": 2.0} | attributes)
    return Node(declared, spec, find_device("npu2"), renamed)


def test_operands_scalars_and_device() -> None:
    n = node(tensor("q", 2, 3), None, n=3, mode="fast")
    assert (n["x"].shape, n["x"].rank, n["x"].dtype, n["x"].size, n["x"].present) == (
        (2, 3),
        2,
        "f32",
        6,
        True,
    )
    assert not n["y"].present and n["y"].value is None
    assert n["x"].like() == Made("f32", (2, 3)) and n["x"].like((4,), "i8") == ("i8", (4,))
    assert (n.a, n.n, n.attr("mode"), n.attr("none", 7)) == (2.0, 3, "fast", 7)
    assert n.device == "npu2" and n.max_cores == 32 and n.scratch_mask == 0b100
    assert node(tensor("q", 1), n=2.0).n == 2 and isinstance(node(tensor("q", 1), n=2.0).n, int)
    assert node(tensor("q", 1), alpha=5.0, renamed={"a": "alpha"}).a == 5.0


@pytest.mark.parametrize(
    ("inputs", "more", "name", "expected", "given"),
    [
        ((), {}, "KernelInputCountError", "1 to 2: x, y", "0 inputs"),
        ((tensor("q", 1),) * 3, {}, "KernelInputCountError", "1 to 2: x, y", "3 inputs"),
        ((None, tensor("q", 1)), {}, "KernelInputCountError", "a tensor", "nothing"),
        ((tensor("q", 1),), {"outputs": 2}, "KernelOutputCountError", "1: z", "2 outputs"),
        ((tensor("q"),), {}, "KernelRankError", "1 to 3", "0 (shape [])"),
        ((tensor("q", 1, 1, 1, 1),), {}, "KernelRankError", "1 to 3", "4 (shape [1, 1, 1, 1])"),
        ((tensor("q", 1, dtype=np.float64),), {}, "KernelDtypeError", "f32 or i8", "float64"),
        ((tensor("q", 1, dtype=np.uint8),), {}, "KernelDtypeError", "f32 or i8", "u8"),
        ((tensor("q", 1), tensor("r", 1, dtype=np.int8)), {}, "KernelDtypeError", "f32, that of x", "i8"),
        (
            (tensor("q", 1),),
            {"a": None},
            "KernelMissingParametersError",
            "attribute 'a', a number (it has no default)",
            "a",
        ),
        ((tensor("q", 1),), {"a": "b"}, "KernelScalarArgumentError", "a number", "'b'"),
        ((tensor("q", 1),), {"n": 5}, "KernelScalarArgumentError", "a whole number from -4 to 4", "5"),
        ((tensor("q", 1),), {"n": 1.5}, "KernelScalarArgumentError", "a whole number from -4 to 4", "1.5"),
    ],
)
def test_nodes_are_verified_from_the_declaration(
    inputs: Any, more: Any, name: str, expected: str, given: str
) -> None:
    with pytest.raises(KernelError) as caught:
        node(*inputs, **more).checked_scalars()
    error = caught.value
    assert type(error).__name__ == name
    assert (error.expected, error.given, error.node) == (expected, given, "n0")
    assert "node n0 (K), kernel acme::k@1" in str(error)


@pytest.mark.parametrize("wanted", [True, False])
def test_quantisation_is_verified(wanted: bool) -> None:
    kernel = CustomKernel("acme::q", (In("x", "i8", quantised=wanted),), (Out("z", "i8"),))
    plain = tensor("p", 4, dtype=np.int8)
    scaled = tensor("s", 4, dtype=np.int8, quantisation=Quantisation((0.5,), (1,)))
    good, bad = (scaled, plain) if wanted else (plain, scaled)
    assert (node(good, declared=kernel)["x"].quantisation is not None) == wanted
    with pytest.raises(KernelError, match="scale and zero point") as caught:
        node(bad, declared=kernel)
    assert type(caught.value).__name__ == "KernelQuantisationError"


def test_elementwise_broadcasts_from_the_last_dimension() -> None:
    n = node(tensor("q", 2, 1, 4), tensor("r", 4))
    n.set_outputs({"z": Made("f32", (2, 3, 4))})
    n.set_index_space((2, 3, 4))
    i = Interval
    assert n.elementwise() == {"x": (i(0), i(), i(2)), "y": (i(2),), "z": (i(0), i(1), i(2))}
    assert (
        n.elementwise("x z")
        == n.elementwise("x", "z")
        == {k: v for k, v in n.elementwise().items() if k != "y"}
    )
    n.set_index_space((4,))
    with pytest.raises(KernelError, match=r"shape of x: given \[2, 1, 4\] beside an index space of \[4\]"):
        n.elementwise("x")


def test_access_by_intervals_numbers_and_none() -> None:
    n = node(tensor("q", 2, 3))
    assert n.access("x", 1, None) == {"x": (Interval(1), Interval())}
    assert n.access("x", n.dim(0, 2, -1, 1), n.whole(), n.block(1, 64))["x"] == (
        Interval(0, 2, -1, 1),
        Interval(),
        Interval(1, 64, 0, 63),
    )


def test_what_an_instance_adds() -> None:
    n = node(tensor("q", 2, dtype=np.int8))
    n.aux("table", [1, 2, 3])
    n.scratch("tmp", (2, 3))
    n.pad("x", -1)
    n.set_outputs({"z": Made("i8", (2,))})
    n.fill("z", 2)
    n.work(mul=2)
    assert n.arrays["table"].dtype == np.int8 and n.scratch_bytes == {"tmp": 24}
    assert (n.pads, n.fills, n.work_terms) == ({"x": -1.0}, {"z": 2.0}, {"mul": 2})


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda n: n["q"], "an operand: given 'q'; accepted: x, y, z"),
        (lambda n: n["z"], "an output before infer has given it"),
        (lambda n: n["y"].shape, "given an absent input"),
        (lambda n: n.index_space, "n.index_space: given nothing yet"),
        (lambda n: n.aux("tabel", [1]), "given 'tabel'; accepted: table, recip"),
        (lambda n: n.aux("table", [1.5]), "auxiliary tensor table: given float64; accepted: i8"),
        (lambda n: n.aux("table", np.zeros(0, np.int8)), "given no elements"),
        (lambda n: n.scratch("temp", 4), "given 'temp'; accepted: tmp"),
        (lambda n: n.scratch("tmp", 0), r"given \[0\] of f32"),
        (lambda n: n.pad("z", 0), "pad of: given 'z'; accepted: x, y"),
        (lambda n: n.pad("x", float("inf")), "pad of x: given inf; accepted: a value of i8"),
    ],
)
def test_what_methods_may_not_say(act: Any, says: str) -> None:
    with pytest.raises(KernelError, match=says):
        act(node(tensor("q", 2, dtype=np.int8)))
    with pytest.raises(AttributeError, match="no 'b'; the kernel's scalars: a, n"):
        _ = node(tensor("q", 2)).b
