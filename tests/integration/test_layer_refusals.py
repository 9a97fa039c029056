# SPDX-License-Identifier: Apache-2.0
"""What layers say that cannot be, refused where it is declared or placed: typed, and named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper

import onedispatch as od
from onedispatch.operators.plugin import registrations
from tests.plugins import model, value

SHAPE = (1, 2, 8, 8)
X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    registrations.forget(__file__)


def declared(**names: Any) -> type:
    return type("Refused", (od.Layer,), {"__module__": __name__, "name": "refusals::it", **names})


def run(attributes: Mapping[str, Any] | None = None, **names: Any) -> Any:
    declared(**names)
    node = helper.make_node("It", ["x"], ["y"], "n0", domain="refusals", **attributes or {})
    made = model([node], [value("x", SHAPE)], [value("y", None)])
    (y,) = od.InferenceSession(made, fallback="error").run(None, {"x": X})
    return y


def same(self: Any, t: Any) -> None:
    t.y[:] = t.x


def params(default: Any = None, **annotations: Any) -> type:
    more = {} if default is None else dict.fromkeys(annotations, default)
    return type("Params", (), {"__annotations__": annotations, **more})


DECLARED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing computes": ({}, r"layer refusals::it: given nothing that computes.*local\(self, t\)"),
    "name": ({"name": "It", "local": same}, "kernel It@1: name"),
    "our namespace": ({"name": "od::it", "local": same}, "'od', which is ours"),
    "no class": ({"local": same, "Params": 3}, "Params: given 3; accepted: a class with annotated names"),
    "type": ({"local": same, "Params": params(a=dict)}, r"Params.a: given <class 'dict'>.*tuple\[int, ...\]"),
    "default": (
        {"local": same, "Params": params("q", a=int)},
        "Params.a, default: given 'q'.*a whole number",
    ),
    "twice": ({"local": same, "Params": params(x=int)}, "a name that stands twice: given 'x'"),
    "host_inputs": ({"local": same, "host_inputs": "z"}, "host_inputs: given 'z'; accepted: some of: x"),
    "element type": ({"local": same, "dtypes": "f99"}, "f99"),
}


@pytest.mark.parametrize("case", DECLARED)
def test_declarations(case: str) -> None:
    names, said = DECLARED[case]
    with pytest.raises(od.KernelError, match=said):
        declared(**names)


def test_a_class_that_cannot_be_made_for_a_node() -> None:
    with pytest.raises(od.OneDispatchError, match="layer refusals::it, the class"):
        declared(local=same, __init__=lambda self, more: None)


LIST = params(size=tuple[int, int])
PLACED: dict[str, tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = {
    "missing": ({"Params": LIST}, {}, od.KernelMissingParametersError, "parameter size: given nothing"),
    "length": ({"Params": LIST}, {"size": [1]}, od.KernelParameterInvalidError, r"given \[1\].*2 numbers"),
    "unknown": (
        {"Params": params(1, top=int)},
        {"topp": 2},
        od.KernelParameterInvalidError,
        "Did you mean 'top'",
    ),
    "number": ({"Params": params(1.0, a=float)}, {"a": "q"}, od.KernelScalarArgumentError, "scalar a"),
    "text": (
        {"Params": params("z", a=str)},
        {"a": 3},
        od.KernelParameterInvalidError,
        "given 3; accepted: text",
    ),
    "shape": ({"shape": lambda s, n: "x"}, {}, od.KernelOutputSizeError, "output y, as infer says"),
    "status": ({"shape": lambda s, n: -1}, {}, od.KernelNotSupportedError, "shape: given answered -1"),
    "coefficients": ({"input_type": lambda s, i: "coeff"}, {}, od.KernelNonStaticInputError, "input x"),
    "input type": (
        {"input_type": lambda s, i: "odd"},
        {},
        od.KernelParameterInvalidError,
        r"input_type\(0\)",
    ),
    "buffer": ({"get_local_buffer_size": lambda s, d: -4}, {}, od.KernelParameterInvalidError, "given -4"),
    "large buffer": (
        {"get_local_buffer_size": lambda s, d: 1 << 20},
        {},
        od.UnsupportedModelError,
        "its scratch takes 1,048,576 bytes",
    ),
    "host data": (
        {"shape": lambda s, n: n["x"].like(n["x"].host_data.shape)},
        {},
        od.KernelNonStaticInputError,
        "host_data of x",
    ),
    "elements": (
        {"just_reshape": True, "shape": lambda s, n: n["x"].like((2, 63))},
        {},
        od.KernelLayerConfigurationError,
        "just_reshape says so",
    ),
    "raises": ({"shape": lambda s, n: 1 // 0}, {}, od.InternalError, "ZeroDivisionError"),
}


@pytest.mark.parametrize("case", PLACED)
def test_nodes(case: str) -> None:
    names, attributes, error, said = PLACED[case]
    with pytest.raises(error, match=said) as refused:
        run(attributes, **{"local": same, **names})
    assert "n0" in str(refused.value)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (-1, od.KernelNotSupportedError),
        (-2, od.KernelParameterInvalidError),
        (-3, od.KernelRuntimeFailureError),
        (-7, od.KernelRuntimeFailureError),
        ("no", od.KernelRuntimeFailureError),
        (True, od.KernelRuntimeFailureError),
    ],
)
def test_statuses_of_bodies(status: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=rf"local: answered {status!r}"):
        run(local=lambda self, t: (same(self, t), status)[1])
    with pytest.raises(error, match=rf"global_: given answered {status!r}"):
        run(global_=lambda self, g: (g.copy(g.y, g.x), status)[1])


@pytest.mark.parametrize("status", [0, 1, np.int64(3), None])
def test_statuses_of_bodies_that_are_well(status: Any) -> None:
    assert (run(local=lambda self, t: (same(self, t), status)[1]) == X).all()


class TestSlices:
    HALO: dict[str, Any] = {  # noqa: RUF012
        "access": lambda self, n: {
            **n.access("x", 0, 1, n.dim(2, 1, -1, 1), n.dim(3, 1, 0, 2)),
            **n.elementwise("y"),
        },
        "local": lambda self, t: t.y.__setitem__(slice(None), t.x[:, :, 1:-1, :-2]),
        "is_backslice_optimize_support_layer": True,
    }
    RIGHT: dict[str, Any] = {  # noqa: RUF012
        "backward_hslice": lambda self, n: n + 2,
        "backward_hidx": lambda self, i: i - 1,
        "backward_wslice": lambda self, n: n + 2,
    }

    def test_hooks_that_say_what_access_says(self) -> None:
        assert (run(**self.HALO, **self.RIGHT) == X).all()
        kh: dict[str, Any] = {
            "backward_kh": lambda self, k: k + 2,
            "backward_up_pad_h": lambda self, p: p + 1,
        }
        assert (run(**self.HALO, **self.RIGHT, **kh) == X).all()

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"backward_hslice": lambda s, n: n + 1}, r"backward_hslice.*given \[-1, 0\].*\[-1, 1\], which"),
            ({"backward_hidx": lambda s, i: i}, r"backward_hidx: given \[3, 5\].*\[2, 4\]"),
            ({"backward_wslice": lambda s, n: n}, r"backward_wslice.*\[0, 2\], which members touch"),
            ({"backward_hslice": lambda s, n: 2.5}, "2.5; accepted: a whole number"),
            ({"backward_hslice": lambda s, n: -1}, "-1; accepted: 0 or more"),
            (
                {"forward_height": lambda s, n: n - 1},
                r"forward_height\(8\): given 7; accepted: 8, which shape",
            ),
            ({"forward_height": lambda s, n: n if n == 8 else n - 3}, "at least"),
            ({"backward_stride_h": lambda s, n: 2 * n}, r"backward_stride_h\(1\): given 2; accepted: 1"),
            ({"backward_kh": lambda s, n: 1 * n}, r"backward_kh\(1\): given 1; accepted: 3"),
        ],
    )
    def test_hooks_that_lie(self, wrong: dict[str, Any], said: str) -> None:
        with pytest.raises(od.KernelError, match=said):
            run(**self.HALO, **{**self.RIGHT, **wrong})

    @pytest.mark.parametrize("hook", [{"is_share_mem_layer": True}, {"can_inplace": lambda s, p: True}])
    def test_a_result_in_the_memory_that_others_read(self, hook: dict[str, Any]) -> None:
        with pytest.raises(
            od.KernelLayerConfigurationError, match=r"y in the memory of x: given dimension 2"
        ):
            run(**{**self.HALO, "is_backslice_optimize_support_layer": False, **hook})


def half(g: Any) -> Any:
    return g.copy(g.y[:, :1], g.x[:, :1])


PROGRAMS: dict[str, tuple[Any, str]] = {
    "not all": (half, r"64 elements of y that nothing writes, the first at \[0, 1, 0, 0\]"),
    "downwards": (lambda g: g.copy(g.y, g.x[..., ::-1]), r"given \[..., ::-1\]; accepted: slices.*upwards"),
    "beyond": (lambda g: g.copy(g.y[0, 2], g.x[0, 0]), "coordinates from -2 to 1"),
    "too many": (lambda g: g.copy(g.y[0, 0, 0, 0, 0], 1.0), "4 dimensions"),
    "no index": (lambda g: g.y["a"], "whole numbers, slices"),
    "an input": (lambda g: g.copy(g.x, g.y), "x as its target"),
    "twice": (lambda g: (half(g), half(g)), "64 of 64 elements of y a second time"),
    "another shape": (lambda g: g.copy(g.y, g.x[:, :1]), r"f32\[1, 1, 8, 8\] into f32\[1, 2, 8, 8\]"),
    "another type": (lambda g: g.copy(g.buffer(2, "i8"), g.x[0, 0, 0, :2]), "f32.* into i8"),
    "before it is there": (lambda g: g.copy(g.y, g.buffer(SHAPE)), "that nothing writes"),
    "no buffer": (lambda g: g.buffer(1000), "given 4,000 bytes.*accepted: at most 600"),
    "buffer of nothing": (lambda g: g.buffer((0, 1)), "sizes above 0"),
    "fill": (lambda g: g.fill(g.y, "a"), "a number of f32"),
    "no local": (lambda g: g.local(x=g.x, y=g.y), "a layer without local"),
    "no kernel": (lambda g: g.call("refusals::itt", x=g.x, y=g.y), "Did you mean 'refusals::it@1'"),
    "no operand": (lambda g: g.call("refusals::it", z=g.x), "g.call.*given z; accepted: x, y"),
    "no view": (lambda g: g.copy(3, g.x), "a view of this layer's"),
    "transposed": (lambda g: g.x.transposed(0, 1, 2, 2), "each of 0 to 3 once"),
    "written after it is read": (
        lambda g: (b := g.buffer(8), g.fill(b, 1), g.copy(g.y[0, 0, 0], b), g.fill(b[:1], 2)),
        "which has been read",
    ),
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_global_programs(case: str) -> None:
    program, said = PROGRAMS[case]
    sized = {"get_global_buffer_size": lambda self: 600}
    with pytest.raises(od.KernelError, match=said) as refused:
        run(global_=lambda self, g: (program(g), None)[1], **sized)
    assert "n0" in str(refused.value)


def test_a_method_that_a_program_has_not() -> None:
    with pytest.raises(od.InternalError, match=r"no 'load'; it has x, y, buffer, copy, fill, local, call"):
        run(global_=lambda self, g: g.load(g.x))


@pytest.mark.parametrize("move", ["copy", "fill", "load", "store"])
def test_a_local_layer_moves_nothing(move: str) -> None:
    with pytest.raises(od.KernelNotSupportedError, match=rf"t.{move} in local: a move of data"):
        run(local=lambda self, t: getattr(t, move)(t.y, t.x))


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (999, "expected: 0 to 128, the planned size"),
        ((1, 2), "rank 2"),
        (-1, "expected: 0 to 128"),
        (1.5, "1.5"),
    ],
)
def test_actual_sizes(shape: Any, said: str) -> None:
    def local(self: Any, t: Any) -> None:
        t.y[:] = 0
        t.resize("y", shape)

    flat = {"shape": lambda self, n: n["x"].like((128,)), "output_shape_is_dynamic": True}
    with pytest.raises(od.KernelError, match=said):
        run(local=local, **flat)
    with pytest.raises(od.KernelError, match="whose output_shape_is_dynamic"):
        run(local=lambda self, t: t.resize("y", 3))


def test_methods_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDISPATCH_KERNEL_SECONDS", "0.3")

    def forever(self: Any, *rest: Any) -> Any:
        while True:
            pass

    for name in ("shape", "local", "can_inplace", "get_local_buffer_size"):
        with pytest.raises(od.KernelTimeoutError, match=r"no end within 0\.3 seconds"):
            run(**{"local": same, name: forever})
    with pytest.raises(od.KernelTimeoutError, match="no end within"):
        run(global_=forever)


def test_rows_that_no_core_holds_are_named() -> None:
    class Rows(od.Layer):
        name = "refused::rows"

        def index_space(self, n: Any) -> Any:
            return n["x"].shape[:1]

        def access(self, n: Any) -> Any:
            return {name: (n.dim(0), n.whole()) for name in "xy"}

        def local(self, t: Any) -> None:
            t.y[:] = t.x[:, ::-1]

    g = od.Graph()
    g.output(g.add_layer("refused::rows", [g.input("x", (4, 40_000))]))
    with pytest.raises(od.UnsupportedModelError, match=r"operand x .* needs 160,000 bytes in every call"):
        od.InferenceSession(g, fallback="error")


def test_lists_of_numbers_that_i32_cannot_hold() -> None:
    class Listed(od.Layer):
        name = "refused::listed"

        class Params:
            places: tuple[int, ...] = ()

        def local(self, t: Any) -> None:
            t.y[:] = t.x

    g = od.Graph()
    g.output(g.add_layer("refused::listed", [g.input("x", (4,))], {"places": [1, 1 << 40]}))
    accepted = "accepted: a list of whole numbers from -2147483648 to 2147483647"
    with pytest.raises(od.KernelParameterInvalidError, match=accepted):
        od.InferenceSession(g, fallback="error")
