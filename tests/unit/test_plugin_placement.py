# SPDX-License-Identifier: Apache-2.0
"""Instances of custom kernels: what their methods may answer, races and gaps among it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from onedispatch.operators.declarations import registry
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec
from onedispatch.operators.plugin import plugin, registrations
from onedispatch.operators.plugin.instance import Interval, KernelInstance
from onedispatch.operators.plugin.instance_checks import first_missed
from onedispatch.operators.plugin.lowering import MemberOperator
from onedispatch.operators.plugin.node import Node
from onedispatch.operators.plugin.operands import Out
from onedispatch.transactions import find_device
from onedispatch.transactions.base.errors import InternalError, KernelError

DEVICE = find_device("npu2")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    registrations.forget()


class Plain:
    """Element-wise; tests put other methods in place."""

    def infer(self, n: Any) -> Any:
        return {"z": n["x"].like()}

    def body(self, t: Any) -> None:
        t.z[:] = t.x


def kernel_of(methods: dict[str, Any] | None = None, base: type = Plain, **declared: Any) -> Any:
    facts = {"inputs": "x", "outputs": "z"} | declared
    return plugin.plugin_of(plugin.kernel("acme::k", **facts)(type("K", (base,), methods or {})))


def node_of(kernel: Any, *shape: int, dtype: str = "f32", outputs: Any = (None,), **attributes: Any) -> Node:
    x = TensorSpec("x", DTYPES[dtype].numpy, shape)
    spec = NodeSpec("n0", "K", "acme", 1, [x], list(outputs), attributes)
    return Node(kernel.kernel, spec, DEVICE)


def placed(methods: dict[str, Any] | None = None, *shape: int, **declared: Any) -> KernelInstance:
    kernel = kernel_of(methods, **declared)
    found: KernelInstance = kernel.instantiate(node_of(kernel, *(shape or (4, 6))))
    return found


def answers(value: Any) -> Any:
    return lambda self, n: value(n) if callable(value) else value


I = Interval  # noqa: E741
ROWS = (I(0), I(1))


def test_what_is_left_out_is_elementwise() -> None:
    it = placed()
    assert it.index_space == (4, 6) and it.access == {"x": ROWS, "z": ROWS}
    assert it.outputs == {"z": ("f32", (4, 6))}
    assert it.work == {"op": 0.0} and it.basis == "counted"  # a copy: loads and stores alone


def test_short_answers() -> None:
    it = placed(
        {
            "infer": answers({"z": (8,)}),
            "index_space": answers(8),
            "access": answers({"x": (None, None), "z": [0]}),
        }
    )
    assert it.outputs == {"z": ("f32", (8,))} and it.index_space == (8,)
    assert it.access == {"x": (I(), I()), "z": (I(0),)}
    assert placed({"infer": answers({"z": (np.float32, [3])})}, 3).outputs == {"z": ("f32", (3,))}


def test_scalars_may_be_computed() -> None:
    it = placed({"scalars": answers(lambda n: {"n": n["x"].shape[1]})}, scalars={"n": "u32", "m": ("f32", 2)})
    assert it.scalars == {"n": 6, "m": 2.0}


def test_work_may_be_counted_by_a_method() -> None:
    it = placed({"work": answers(lambda n: {"exp": n["x"].shape[1]})}, work={"exp": 1, "op": 2})
    assert it.work == {"exp": 6, "op": 2.0}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"index_space": answers((1, 2, 3, 4, 5, 6))},
        "KernelParameterInvalidError",
        r"index space: given 6 dimensions: .*at most 5",
    ),
    ({"index_space": answers((4, 0))}, "KernelParameterInvalidError", "index space, dimension 1: given 0"),
    ({"index_space": answers((-4, 6))}, "KernelParameterInvalidError", "dimension 0: given -4"),
    ({"index_space": answers("ab")}, "KernelParameterInvalidError", "index space: given 'ab'"),
    (
        {"infer": answers({"y": (4,)})},
        "KernelOutputCountError",
        "infer: given y; accepted: dtype and shape of z",
    ),
    ({"infer": answers(None)}, "KernelOutputCountError", "infer: given None"),
    (
        {"infer": answers({"z": ("i8", (4,))})},
        "KernelDtypeError",
        "dtype of output z.*given 'i8'; accepted: f32",
    ),
    ({"infer": answers({"z": ("f32", (1,) * 6)})}, "KernelRankError", "rank of output z"),
    ({"infer": answers({"z": ("f32", (-1,))})}, "KernelOutputSizeError", r"given \(-1,\)"),
    ({"infer": answers({"z": 7})}, "KernelOutputSizeError", "output z, as infer says: given 7"),
    ({"access": answers({"x": ROWS})}, "KernelParameterInvalidError", "access of z: given nothing"),
    (
        {"access": answers({"x": ROWS, "z": ROWS, "q": ROWS})},
        "KernelParameterInvalidError",
        "access of: given q",
    ),
    ({"access": answers(7)}, "KernelParameterInvalidError", "access: given 7"),
    ({"access": answers({"x": 7, "z": ROWS})}, "KernelParameterInvalidError", "access of x: given 7"),
    (
        {"access": answers({"x": (I(0),), "z": ROWS})},
        "KernelParameterInvalidError",
        "given 1 interval; accepted: 2",
    ),
    (
        {"access": answers({"x": (I(0), "i"), "z": ROWS})},
        "KernelParameterInvalidError",
        "dimension 1: given 'i'",
    ),
    (
        {"access": answers({"x": (I(0), I(2)), "z": ROWS})},
        "KernelParameterInvalidError",
        "x, dimension 1: given index dimension 2",
    ),
    (
        {"access": answers({"x": (I(0), I(1, 1, 2, 1)), "z": ROWS})},
        "KernelParameterInvalidError",
        "x, dimension 1: given start 2, end 1",
    ),
    (
        {"access": answers({"x": (I(0), I(1, 0.5)), "z": ROWS})},
        "KernelParameterInvalidError",
        "given a = 0.5; accepted: a whole number, or a Fraction",
    ),  # type: ignore[arg-type]
    (
        {"access": answers({"x": (I(0), I(1, Fraction(1, 999))), "z": ROWS})},
        "KernelParameterInvalidError",
        "a = 1/999",
    ),
    (
        {"access": answers({"x": ROWS, "z": (I(0), I(1, 1, 0, 1))})},
        "KernelAccessError",
        "output z, a race: .*members 0 and 1 of index dimension 1",
    ),
    (
        {"access": answers({"x": ROWS, "z": (I(0), I())})},
        "KernelAccessError",
        "a race: given nothing that follows index dimension 1: its 6 members",
    ),
    ({"access": answers({"x": ROWS, "z": (I(0), I(1, Fraction(1, 2)))})}, "KernelAccessError", "a race"),
    (
        {"access": answers({"x": ROWS, "z": (I(0), I(1, 2))})},
        "KernelAccessError",
        "output z, a gap: .*leaves out coordinate 1 of 6",
    ),
    (
        {"access": answers({"x": ROWS, "z": (I(0), I(1, 1, 1, 1))})},
        "KernelAccessError",
        "leaves out coordinate 0",
    ),
    (
        {"index_space": answers((4, 5)), "access": answers({"x": ROWS, "z": ROWS})},
        "KernelAccessError",
        "leaves out coordinate 5 of 6",
    ),
    ({"scalars": answers({"b": 1})}, "KernelScalarArgumentError", "scalars: given b; accepted: none"),
    ({"verify": answers("odd rows")}, "KernelLayerConfigurationError", "verify: given odd rows"),
    ({"verify": answers(False)}, "KernelLayerConfigurationError", "verify: given False"),
]


@pytest.mark.parametrize(
    ("methods", "kind", "says"), REFUSED, ids=[f"{kind}-{says[:30]}" for _, kind, says in REFUSED]
)
def test_what_methods_may_not_answer(methods: dict[str, Any], kind: str, says: str) -> None:
    with pytest.raises(KernelError, match=says) as caught:
        placed(methods)
    assert type(caught.value).__name__ == kind and caught.value.node == "n0"


@pytest.mark.parametrize(
    ("declared", "tells", "says"),
    [
        ({"aux": "table"}, lambda n: None, "auxiliary tensor table: given nothing"),
        ({"aux": "table"}, lambda n: n.aux("table", np.zeros((1,) * 6, np.float32)), "given rank 6"),
        ({"scratch": "tmp"}, lambda n: None, "scratch tmp: given nothing"),
        ({}, lambda n: n.work(exp=1), "work: given exp; accepted: op: others are declared"),
        ({"work": {"exp": 1}}, lambda n: n.work(exp=-1), "work"),
        ({}, lambda n: setattr(n, "preferred_split", 2), "preferred_split: given 2; accepted: 0 to 1"),
    ],
)
def test_what_instances_may_not_leave_out(declared: dict[str, Any], tells: Any, says: str) -> None:
    def index_space(self: Any, n: Any) -> Any:
        tells(n)
        return n["x"].shape

    with pytest.raises(KernelError, match=says):
        placed({"index_space": index_space}, **declared)


def test_gaps_with_a_fill_are_none() -> None:
    access = answers({"x": ROWS, "z": (I(0), I(1, 2))})
    assert placed({"access": access}, outputs=[Out("z", fill=0)]).access["z"] == (I(0), I(1, 2))

    def filled(self: Any, n: Any) -> Any:
        n.fill("z", 3)
        return {"x": ROWS, "z": (I(0), I(1, 2))}

    assert placed({"access": filled}).fills == {"z": 3.0}


@pytest.mark.parametrize("seed", range(40))
def test_gaps_are_found_where_they_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = [1, 2, 5, -1, -3, Fraction(1, 2), Fraction(5, 2)][seed % 7]
    start, members = int(rng.integers(-9, 9)), int(rng.integers(1, 9))
    it = Interval(0, a, start, start + int(rng.integers(0, 4)))
    size = int(rng.integers(1, 30))
    touched = {c for i in range(members) for c in range(it.first(i), it.first(i) + it.span)}
    missed = [c for c in range(size) if c not in touched]
    assert (first_missed(it, members, size) is None) == (not missed)


def test_mistakes_of_methods_name_them() -> None:
    def broken(self: Any, n: Any) -> Any:
        raise IndexError("no such thing")

    with pytest.raises(
        InternalError, match=r"node n0 \(K\), kernel acme::k@1.*broken.*IndexError: no such thing"
    ):
        placed({"access": broken})


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (lambda: plugin.kernel("acme::k", inputs="x", outputs="z")(7), "given 7; accepted: a class"),  # type: ignore[type-var]
        (
            lambda: plugin.kernel("acme::k", inputs="x", outputs="z")(type("K", (), {})),
            "no body; accepted: a method body",
        ),
        (lambda: plugin.maps("K")(type("K", (), {})), "a class that od.kernel decorates"),
        (lambda: plugin.maps()(kernel_of().cls), "no operator"),
        (
            lambda: plugin.maps("K", attributes={"b": "c"})(kernel_of().cls),
            "attributes of: given b; accepted: no scalars",
        ),
        (lambda: kernel_of(outputs="z:i8", work={"erf": 1}), "work on i8: given erf; accepted: op, mul"),
        (lambda: kernel_of(prints="often"), "prints: given 'often'"),
        (
            lambda: kernel_of(inputs=[plugin.In(f"x{i}", rank=5) for i in range(15)]),
            "words of the parameter block",
        ),
    ],
)
def test_what_cannot_be_declared_or_mapped(target: Any, says: str) -> None:
    with pytest.raises(KernelError, match=says):
        target()


def test_a_decorated_class_is_mapped_with_other_attribute_names() -> None:
    cls = kernel_of(scalars={"a": "f32"}).cls
    assert plugin.maps("K", "L", domain="acme", attributes={"a": "alpha"})(cls) is cls
    row = registry.mapping_for("acme", "L")
    assert row is not None and row.dtypes == ("float32",) and row.custom.plugin.kernel.name == "acme::k@1"
    spec = NodeSpec("n", "L", "acme", 1, [TensorSpec("x", np.dtype(np.float32), (2,))], [None], {"alpha": 3})
    assert row.custom.node(spec, DEVICE).a == 3.0


def operator(kernel: Any, *shape: int, preferred: int | None = None) -> MemberOperator:
    node = node_of(kernel, *shape)
    instance = replace(kernel.instantiate(node), preferred_split=preferred)
    x, z = (TensorSpec(name, np.dtype(np.float32), shape) for name in "xz")
    return MemberOperator(kernel, node, instance, {"x": x}, {"z": z}, DEVICE)


def test_the_preferred_split_is_the_one_that_is_cut() -> None:
    kernel = kernel_of()
    for preferred in (0, 1):
        (nest,) = operator(kernel, 100, 90, preferred=preferred).nests()
        assert nest.cut == [preferred]
    (nest,) = operator(kernel, 100, 90).nests()
    assert nest.cut == [0, 1]
    (large,) = operator(kernel, 100, 100_000, preferred=0).nests()
    assert large.cut == [0, 1], "rows that no core holds are cut as well"


def test_names_of_64_bytes_without_a_version_run() -> None:
    name = "acme::" + "k" * 58
    found = plugin.plugin_of(plugin.kernel(name, inputs="x", outputs="z")(type("K", (Plain,), {})))
    assert found is not None and found.kernel.name == f"{name}@1"
