# SPDX-License-Identifier: Apache-2.0
"""Custom kernels written in Python, from the decorated class to the results of a session."""

from __future__ import annotations

import inspect
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import onedispatch as od
from onedispatch.operators.plugin import registrations
from tests import plugins
from tests.plugins import value

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(9)


pytestmark = pytest.mark.usefixtures("no_plugins")


def model(
    op: str, inputs: dict[str, Array], outputs: dict[str, Any], domain: str = "acme", **attributes: Any
) -> Any:
    """One node; ``outputs``: the NumPy type, or (type, shape) where the model declares it."""

    def told(name: str, said: Any) -> onnx.ValueInfoProto:
        dtype, shape = said if isinstance(said, tuple) else (said, None)
        return value(name, shape, dtype)

    given = [value(name, a.shape, a.dtype) for name, a in inputs.items() if name]
    node = helper.make_node(op, list(inputs), list(outputs), domain=domain, **attributes)
    return plugins.model([node], given, [told(*one) for one in outputs.items()])


def run(
    op: str, inputs: dict[str, Array], outputs: dict[str, Any], *, device: str = "npu2", **attributes: Any
) -> list[Array]:
    """The node on the device, where nothing of it may run on the host."""
    session = od.InferenceSession(model(op, inputs, outputs, **attributes), device=device, fallback="error")
    assert [one.device for one in session.placement] == ["npu"]
    found: list[Array] = session.run(None, {name: a for name, a in inputs.items() if name})
    return found


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


@od.kernel("acme::scale_add", inputs="x y", outputs="z", scalars={"a": "f32"})
class ScaleAdd:
    def infer(self, n: Any) -> Any:
        return {"z": n["x"].like()}

    def index_space(self, n: Any) -> Any:
        return n["x"].shape

    def access(self, n: Any) -> Any:
        return n.elementwise("x", "y", "z")

    def body(self, t: Any) -> None:
        t.z[:] = t.a * t.x + t.y


def map_scale_add() -> None:
    od.maps("ScaleAdd", domain="acme")(ScaleAdd)


def test_an_elementwise_kernel_takes_fifteen_lines_or_fewer() -> None:
    lines = [line for line in inspect.getsource(ScaleAdd).splitlines() if line.strip()]
    assert len(lines) + 1 <= 15  # with the line that maps it
    map_scale_add()
    x, y = floats(50, 70), floats(50, 70)
    (z,) = run("ScaleAdd", {"x": x, "y": y}, {"z": np.float32}, a=2.5)
    assert np.array_equal(z, np.float32(2.5) * x + y)


@pytest.mark.parametrize("device", ["npu1", "npu1_1col", "npu2", "npu2_3col"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (40, 3), (2, 3, 4, 5, 6), (0, 3)])
def test_shapes_and_devices(shape: tuple[int, ...], device: str) -> None:
    map_scale_add()
    x, y = floats(*shape), floats(*shape)
    (z,) = run("ScaleAdd", {"x": np.asarray(x), "y": np.asarray(y)}, {"z": np.float32}, a=0.5, device=device)
    assert np.array_equal(z, np.float32(0.5) * x + y)


def test_methods_may_be_left_out() -> None:
    @od.kernel("acme::twice", inputs="x:f32|i8|bf16|f16", outputs="z")
    class Twice:
        def body(self, t: Any) -> None:
            t.z[:] = t.x + t.x

    od.maps("Twice", domain="acme")(Twice)
    for dtype in (np.float32, np.int8, ml_dtypes.bfloat16, np.float16):
        x = RNG.integers(-9, 9, (5, 21)).astype(dtype)
        (z,) = run("Twice", {"x": x}, {"z": (dtype, x.shape)})
        assert z.dtype == dtype and np.array_equal(z, x + x)
    with pytest.raises(
        od.KernelDynamicShapeError, match="a shape that the model declares, or a method infer"
    ):
        run("Twice", {"x": floats(3)}, {"z": np.float32})


def test_softmax_along_either_dimension() -> None:
    @od.kernel("acme::softmax", inputs="x", outputs="z", scalars={"axis": ("i32", -1)})
    class Softmax:
        def infer(self, n: Any) -> Any:
            return {"z": n["x"].like()}

        def index_space(self, n: Any) -> Any:
            return n["x"].shape[1 - n.axis % 2]

        def access(self, n: Any) -> Any:
            along = [0, None] if n.axis % 2 else [None, 0]
            return n.access("x", *along) | n.access("z", *along)

        def body(self, t: Any) -> None:
            axis = int(t.axis) % 2
            powers = np.exp(t.x - t.x.max(axis=axis, keepdims=True))
            t.z[:] = powers / powers.sum(axis=axis, keepdims=True)

    od.maps("Softmax", domain="acme")(Softmax)
    x = floats(40, 24)
    for axis in (0, 1, -1):
        (z,) = run("Softmax", {"x": x}, {"z": np.float32}, axis=axis)
        powers = np.exp(x - x.max(axis=axis, keepdims=True))
        np.testing.assert_allclose(z, powers / powers.sum(axis=axis, keepdims=True), rtol=1e-6)


def test_a_matrix_product_and_a_gather() -> None:
    @od.kernel("acme::product", inputs="x y", outputs="z")
    class Product:
        def infer(self, n: Any) -> Any:
            return {"z": n["x"].like((n["x"].shape[0], n["y"].shape[1]))}

        def access(self, n: Any) -> Any:
            return n.access("x", 0, None) | n.access("y", None, 1) | n.access("z", 0, 1)

        def body(self, t: Any) -> None:
            t.z[:] = t.x.astype(np.float64) @ t.y

    @od.kernel("acme::gather", inputs="table i:i32", outputs="z")
    class Gather:
        def infer(self, n: Any) -> Any:
            return {"z": n["table"].like(n["i"].shape)}

        def access(self, n: Any) -> Any:
            return n.elementwise("i z") | n.access("table", None)

        def body(self, t: Any) -> None:
            t.z[:] = t.table[t.i]

    od.maps("Product", domain="acme")(Product)
    od.maps("Gather", domain="acme")(Gather)
    x, y = floats(37, 20), floats(20, 45)
    (z,) = run("Product", {"x": x, "y": y}, {"z": np.float32})
    np.testing.assert_allclose(z, x @ y, rtol=1e-5, atol=1e-5)
    table, i = floats(64), RNG.integers(0, 64, (9, 33)).astype(np.int32)
    (z,) = run("Gather", {"table": table, "i": i}, {"z": np.float32})
    assert np.array_equal(z, table[i])


def test_a_box_filter_with_a_pad_and_up_sampling() -> None:
    @od.kernel("acme::box", inputs=[od.In("x", pad=1.0)], outputs="z", scalars={"radius": "u32"})
    class Box:
        def infer(self, n: Any) -> Any:
            return {"z": n["x"].like()}

        def access(self, n: Any) -> Any:
            r = n.radius
            return n.access("x", n.dim(0, 1, -r, r), n.dim(1, 1, -r, r)) | n.elementwise("z")

        def body(self, t: Any) -> None:
            size = 2 * t.radius + 1
            windows = np.lib.stride_tricks.sliding_window_view(t.x, (size, size))
            t.z[:] = windows.sum(axis=(2, 3))

    @od.kernel("acme::up", inputs="x", outputs="z")
    class Up:
        def infer(self, n: Any) -> Any:
            return {"z": n["x"].like((2 * n["x"].size,))}

        def access(self, n: Any) -> Any:
            return n.access("x", n.dim(0, Fraction(1, 2))) | n.elementwise("z")

        def body(self, t: Any) -> None:
            at = np.arange(t.origin[0], t.origin[0] + t.shape[0]) // 2
            t.z[:] = t.x[at - t.first("x")[0]]

    od.maps("Box", domain="acme")(Box)
    od.maps("Up", domain="acme")(Up)
    x = RNG.integers(-9, 9, (30, 41)).astype(np.float32)
    (z,) = run("Box", {"x": x}, {"z": np.float32}, radius=2)
    padded = np.pad(x, 2, constant_values=1)
    assert np.array_equal(z, np.lib.stride_tricks.sliding_window_view(padded, (5, 5)).sum(axis=(2, 3)))
    (z,) = run("Up", {"x": x[0]}, {"z": np.float32})
    assert np.array_equal(z, np.repeat(x[0], 2))


def test_several_outputs_tables_scratch_and_32_scalars() -> None:
    names = [f"s{i}" for i in range(32)]

    @od.kernel(
        "acme::many",
        inputs=[od.In("x"), od.In("y", like="x", optional=True)],
        outputs=[od.Out("z"), od.Out("least", "f32"), od.Out("mask", "bool")],
        scalars=dict.fromkeys(names, "f32"),
        aux="table recip",
        scratch="tmp",
        work={"op": 3, "mul": 2},
    )
    class Many:
        def infer(self, n: Any) -> Any:
            rows = n["x"].shape[:1]
            return {"z": n["x"].like(), "least": ("f32", rows), "mask": n["x"].like(dtype="bool")}

        def index_space(self, n: Any) -> Any:
            assert n.scratch_mask == 0b100
            n.aux("table", np.arange(4, dtype=np.float32))
            n.aux("recip", np.float32(1) / np.arange(1, 5, dtype=np.float32).reshape(2, 2))
            n.scratch("tmp", n["x"].shape[1])
            n.work(op=7)
            return n["x"].shape[:1]

        def access(self, n: Any) -> Any:
            names = ["x", "y", "z", "mask"] if n["y"].present else ["x", "z", "mask"]
            whole = dict.fromkeys(names, (0, None))
            return whole | n.access("least", 0)

        def body(self, t: Any) -> None:
            t.tmp[: t.x.shape[1]] = t.table[3] * t.recip[1, 1]
            weight = np.float32(sum(getattr(t, name) for name in names))
            t.z[:] = t.x * weight * t.tmp[: t.x.shape[1]] + (0 if t.y is None else t.y)
            t.least[:] = t.x.min(axis=1)
            t.mask[:] = t.x > 0

    od.maps("Many", domain="acme", attributes={"s0": "first"})(Many)
    scalars = {name: float(i) for i, name in enumerate(names[1:])}
    x, y = floats(19, 21), floats(19, 21)
    outputs = {"z": np.float32, "least": np.float32, "mask": np.bool_}
    weight = np.float32(sum(scalars.values()) + 3) * np.float32(0.75)
    for given in ({"x": x, "y": y}, {"x": x}, {"x": x, "": x}):
        z, least, mask = run("Many", given, outputs, first=3.0, **scalars)
        expected = x * np.float32(weight / 0.75) * np.float32(0.75) + (y if "y" in given else 0)
        np.testing.assert_allclose(z, expected, rtol=1e-5)
        assert np.array_equal(least, x.min(axis=1)) and np.array_equal(mask, x > 0)


def test_vectors_of_64_elements_and_gaps_with_a_fill() -> None:
    @od.kernel("acme::vectors", inputs="x", outputs=[od.Out("z", fill=-1)])
    class Vectors:
        def infer(self, n: Any) -> Any:
            return {"z": n["x"].like((2 * n["x"].size,))}

        def index_space(self, n: Any) -> Any:
            return -(-n["x"].size // 64)

        def access(self, n: Any) -> Any:
            return n.access("x", n.block(0, 64)) | n.access("z", n.dim(0, 128, 0, 63))

        def body(self, t: Any) -> None:
            for member in range(t.shape[0]):
                t.z[128 * member : 128 * member + 64] = t.x[64 * member : 64 * member + 64]

    od.maps("Vectors", domain="acme")(Vectors)
    x = floats(300)
    (z,) = run("Vectors", {"x": x}, {"z": np.float32})
    expected = np.full(600, -1, np.float32)
    padded = np.pad(x, (0, 20))  # what the last member reads outside
    for begin in range(0, 300, 64):
        expected[2 * begin : 2 * begin + 64] = padded[begin : begin + 64]
    assert np.array_equal(z, expected)


def test_several_operators_functions_and_what_is_said_again() -> None:
    @od.kernel("acme::same", inputs="x", outputs="z")
    class Same:
        def infer(self, n: Any) -> Any:
            return {"z": n["x"].like()}

        def body(self, t: Any) -> None:
            t.z[:] = t.x

    assert od.maps("Same", "Copy", domain="acme")(Same) is Same
    x = floats(8, 8)
    for op in ("Same", "Copy"):
        assert np.array_equal(run(op, {"x": x}, {"z": np.float32})[0], x)

    @od.kernel("acme::same", inputs="x", outputs="z")
    class Other(Same):
        def body(self, t: Any) -> None:
            t.z[:] = -t.x

    assert np.array_equal(run("Copy", {"x": x}, {"z": np.float32})[0], -x), "the latest of the name runs"
    od.maps("Same", domain="acme")(Other)
    assert np.array_equal(run("Same", {"x": x}, {"z": np.float32})[0], -x)

    @od.maps("Function", domain="acme")
    def lower(node: Any, lowering: Any) -> None:
        raise od_unsupported()

    with pytest.raises(od.UnsupportedModelError, match="by a function"):
        run("Function", {"x": x}, {"z": (np.float32, x.shape)})


def od_unsupported() -> Exception:
    from onedispatch.operators.declarations.tensor import Unsupported

    return Unsupported("refused by a function")


def test_what_is_too_large_says_which_operand() -> None:
    @od.kernel("acme::all", inputs="x table", outputs="z")
    class All:
        def infer(self, n: Any) -> Any:
            return {"z": n["x"].like()}

        def access(self, n: Any) -> Any:
            return n.elementwise("x z") | n.access("table", None)

        def body(self, t: Any) -> None:
            t.z[:] = t.x + t.table[0]

    od.maps("All", domain="acme")(All)
    x = floats(9)
    with pytest.raises(od.UnsupportedModelError) as caught:
        run("All", {"x": x, "table": floats(100_000)}, {"z": np.float32})
    (line,) = caught.value.nodes
    assert "operand table (access whole) needs 400,000 bytes in every call" in line
    assert "of table per call: intervals that follow an index dimension" in line


def test_on_other_devices_only() -> None:
    @od.kernel("acme::phoenix", inputs="x", outputs="z", devices="npu1")
    class Phoenix:
        def infer(self, n: Any) -> Any:
            return {"z": n["x"].like()}

        def body(self, t: Any) -> None:
            t.z[:] = t.x

    od.maps("Phoenix", domain="acme")(Phoenix)
    x = floats(9)
    assert np.array_equal(run("Phoenix", {"x": x}, {"z": np.float32}, device="npu1_2col")[0], x)
    with pytest.raises(od.UnsupportedModelError, match=r"acme::phoenix@1 is not for npu2.*npu1"):
        run("Phoenix", {"x": x}, {"z": np.float32})


def declaring(**said: Any) -> type:
    class Copies:
        def infer(self, n: Any) -> Any:
            return {"z": n["x"].like()}

        def body(self, t: Any) -> None:
            t.z[:] = t.x

    told = {"inputs": "x", "outputs": "z"} | said
    return od.kernel("acme::copies", **told)(Copies)


@pytest.mark.parametrize(
    "said",
    [
        {"scalars": {"a": ("f32", "one")}},
        {"scalars": ["a"]},
        {"scalars": "a:f32"},
        {"devices": ["npu2", 5]},
        {"work": {"nobody": 1}},
        {"work": {"mul": "two"}},
        {"work": {"mul": -1}},
        {"work": 5},
        {"code_bytes": "many"},
        {"code_bytes": 1e9},
        {"in_place": "z"},
        {"library": 5},
        {"reference": 5},
        {"dtypes": 5},
        {"inputs": 5},
        {"aux": 5},
        {"scratch": [5]},
        {"inputs": [od.In("x", dtypes=5)]},  # type: ignore[arg-type]
        {"inputs": [od.In("x", rank="two")]},  # type: ignore[arg-type]
        {"inputs": [od.In("x", pad=10**400)]},
        {"outputs": [od.Out("z", fill=10**400)]},
    ],
)
def test_arguments_of_other_kinds_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(od.KernelDeclarationInvalidError, match=r"acme::copies|scalar a|In operands"):
        declaring(**said)
    assert registrations.named("acme::copies@1") is None


def test_mappings_of_other_kinds_are_refused() -> None:
    kernel = declaring()
    for said in ({"domain": 5}, {"attributes": 5}, {"attributes": "a"}):
        with pytest.raises(od.KernelDeclarationInvalidError):
            od.maps("Copies", **said)(kernel)  # type: ignore[arg-type]
    for names in ((5,), ("",), ()):
        with pytest.raises(od.KernelDeclarationInvalidError):
            od.maps(*names, domain="acme")(kernel)  # type: ignore[arg-type]


def test_a_dtype_said_twice_is_one() -> None:
    od.maps("Copies", domain="acme")(declaring(inputs="x:f32|f32"))
    x = floats(5, 6)
    assert np.array_equal(run("Copies", {"x": x}, {"z": np.float32})[0], x)


@pytest.mark.parametrize("shape", [np.array([5, 6]), [np.int64(5), np.int32(6)]])
def test_sizes_may_be_numpys(shape: Any) -> None:
    class Sized(declaring()):  # type: ignore[misc]
        def infer(self, n: Any) -> Any:
            return {"z": n["x"].like(shape)}

        def index_space(self, n: Any) -> Any:
            return shape

    od.maps("Copies", domain="acme")(od.kernel("acme::copies", inputs="x", outputs="z")(Sized))
    x = floats(5, 6)
    assert np.array_equal(run("Copies", {"x": x}, {"z": np.float32})[0], x)


@pytest.mark.parametrize(
    ("methods", "error"),
    [
        ({"index_space": lambda self, n: (5.5, 6)}, od.KernelParameterInvalidError),
        ({"access": lambda self, n: {"x": (n.dim(True), 1), "z": (0, 1)}}, od.KernelParameterInvalidError),
        ({"access": lambda self, n: n.pad("x", 10**400)}, od.KernelParameterInvalidError),
        ({"infer": lambda self, n: {"z": n["x"].like((True, 6))}}, od.KernelOutputSizeError),
        ({"scalars": lambda self, n: [1]}, od.KernelScalarArgumentError),
        ({"body": lambda self, t: t.x * 2}, od.KernelParameterInvalidError),
        ({"body": lambda self, t: (yield)}, od.KernelParameterInvalidError),
        ({"body": lambda self, t: t.z.__setitem__(..., None)}, od.KernelDtypeError),
    ],
)  # fmt: skip
def test_answers_of_other_kinds_are_refused(methods: dict[str, Any], error: type) -> None:
    made = type("Answers", (declaring(),), methods)
    od.maps("Copies", domain="acme")(od.kernel("acme::copies", inputs="x", outputs="z")(made))
    with pytest.raises(error):
        run("Copies", {"x": floats(5, 6)}, {"z": np.float32})


def test_a_body_may_return_its_output() -> None:
    made = type("Returns", (declaring(),), {"body": lambda self, t: np.add(t.x, t.x, out=t.z)})
    od.maps("Copies", domain="acme")(od.kernel("acme::copies", inputs="x", outputs="z")(made))
    x = floats(5, 6)
    assert np.array_equal(run("Copies", {"x": x}, {"z": np.float32})[0], x + x)


@pytest.mark.parametrize("device", ["npu1", "npu2"])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_an_interval_may_be_the_same_for_all_members(dtype: Any, device: str) -> None:
    @od.kernel("acme::shifted", inputs="x:f32|i8 w", outputs="z")
    class Shifted:
        def infer(self, n: Any) -> Any:
            return {"z": n["x"].like()}

        def access(self, n: Any) -> Any:
            return n.elementwise("x z") | n.access("w", n.dim(0, 0, 1, 2))

        def body(self, t: Any) -> None:
            assert t.first("w") == (1,) and t.w.shape == (2,)
            t.z[:] = t.x + t.w[0] - t.w[1]

    od.maps("Shifted", domain="acme")(Shifted)
    x, w = (RNG.integers(-9, 9, shape).astype(dtype) for shape in ((301, 7), (9,)))
    (z,) = run("Shifted", {"x": x, "w": w}, {"z": dtype}, device=device)
    assert np.array_equal(z, x + w[1] - w[2])
