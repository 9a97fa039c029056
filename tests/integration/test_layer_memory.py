# SPDX-License-Identifier: Apache-2.0
"""Results in the memory of an input: what they save, and where they must not take it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from onnx import ModelProto, helper

import onedispatch as od
from onedispatch.operators.plugin import registrations
from tests.plugins import model, value


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    registrations.forget(__file__)


def declared() -> type[od.Layer]:
    class Next(od.Layer):
        name = "layers::next"
        is_share_mem_layer = True

        def local(self, t: Any) -> None:
            t.y[:] = t.x + 1

    return Next


class TestMemoryOfAnInput:
    """A result in the memory of the input that nothing else reads."""

    @staticmethod
    def chain(op_type: str, *, read_again: bool) -> ModelProto:
        nodes = [helper.make_node(op_type, [f"v{i}"], [f"v{i + 1}"], domain="layers") for i in range(4)]
        nodes.append(helper.make_node("Add", ["v2" if read_again else "v4", "v4"], ["y"]))
        return model([*nodes], [value("v0", [320, 65])], [value("y", None)])

    @staticmethod
    def declared() -> None:
        following = declared()

        class After(od.Layer):
            name = "layers::after"

            def can_inplace(self, data_prec: str) -> bool:
                assert data_prec == "f32"
                return True

            local = following.local

        class Apart(od.Layer):
            name = "layers::apart"
            local = following.local

    @pytest.mark.parametrize("groups", ["off", "on"])
    @pytest.mark.parametrize("read_again", [False, True])
    def test_less_scratch_and_the_same_bits(self, groups: str, read_again: bool) -> None:
        self.declared()
        x = np.random.default_rng(2).standard_normal((320, 65)).astype(np.float32)
        found = {}
        for op_type in ("Next", "After", "Apart"):
            session = od.InferenceSession(
                self.chain(op_type, read_again=read_again), fallback="error", groups=groups
            )
            (y,) = session.run(None, {"v0": x})
            values = [x]
            for _ in range(4):
                values.append(values[-1] + np.float32(1))
            assert (y == values[2 if read_again else 4] + values[4]).all()
            (executable,) = session.model.executables.values()
            found[op_type] = executable.device_steps[0].sizes[2]
        assert found["Next"] == found["After"]
        assert groups == "on" or found["Next"] < found["Apart"]


@pytest.mark.parametrize("device", ["npu1", "npu2"])
@pytest.mark.parametrize("reshaped", [False, True])
def test_no_memory_is_shared_where_another_input_reads_the_same_memory(device: str, reshaped: bool) -> None:
    declared()

    class Around(od.Layer):
        name = "layers::around"
        inputs: ClassVar[Any] = [od.In("x"), od.In("around", pad=0.0)]
        is_share_mem_layer = True

        def index_space(self, n: Any) -> Any:
            return n["x"].shape

        def access(self, n: Any) -> Any:
            return {**n.elementwise("x", "y"), **n.access("around", n.dim(0, 1, -64, 64))}

        def local(self, t: Any) -> None:
            t.y[:] = t.x + t.around[: -2 * 64] - t.around[2 * 64 :]

    g, x = od.Graph(), np.random.default_rng(7).integers(-99, 99, 50_000).astype(np.float32)
    same = read = g.add_layer("layers::next", [g.input("x", x.shape)])
    if reshaped:
        same = g.add_layer("Reshape", [g.add_layer("Reshape", [read, np.array([-1, 10])]), np.array([-1])])
    g.output(g.add_layer("Neg", [g.add_layer("layers::around", [same, read])]), "y")
    session = od.InferenceSession(g, device, fallback="error")
    (y,) = session.run(None, {"x": x})
    padded = np.pad(x + 1, 64)
    assert (y == -(x + 1 + padded[: -2 * 64] - padded[2 * 64 :])).all()


@pytest.mark.parametrize(
    ("device", "shape"), [("npu1_1col", (12, 3714)), ("npu1", (300_000,)), ("npu2", (100, 999))]
)
def test_no_memory_is_shared_where_tiles_overhang(device: str, shape: tuple[int, ...]) -> None:
    """Tiles that would overhang are shifted back: some elements are computed twice, of the same input."""
    declared()
    g, x = od.Graph(), np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    inner = g.add_layer("layers::next", [g.add_layer("Neg", [g.input("x", shape)])])
    g.output(g.add_layer("Neg", [inner]), "y")
    (y,) = od.InferenceSession(g, device, fallback="error").run(None, {"x": x})
    assert (y == x - 1).all()


def test_two_results_do_not_share_what_both_may_take() -> None:
    @od.kernel("layers::both", inputs="x", outputs="a b", in_place={"a": "x", "b": "x"})
    class Both:
        def infer(self, n: Any) -> Any:
            return {"a": n["x"].like(), "b": n["x"].like()}

        def index_space(self, n: Any) -> Any:
            return n["x"].shape

        def access(self, n: Any) -> Any:
            return n.elementwise("x", "a", "b")

        def body(self, t: Any) -> None:
            t.a[:], t.b[:] = t.x + 1, t.x + 2

    od.maps("Both", domain="layers")(Both)
    g, x = od.Graph(), np.arange(5000, dtype=np.float32)
    _, b = g.add_layer("layers::both", [g.add_layer("Neg", [g.input("x", x.shape)])])
    g.output(g.add_layer("Neg", [b]), "y")
    (y,) = od.InferenceSession(g, fallback="error").run(None, {"x": x})
    assert (y == x - 2).all()
