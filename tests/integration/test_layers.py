# SPDX-License-Identifier: Apache-2.0
"""Layers on the simulated array: their bodies, parameters, memory and actual sizes, beside NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from onnx import ModelProto, helper

import onedispatch as od
from onedispatch.operators.plugin import registrations
from tests.plugins import model, value

Array = np.ndarray[Any, Any]
X = np.random.default_rng(0).standard_normal((2, 3, 20, 24)).astype(np.float32)
DEVICES = ("npu1", "npu2", "npu1_1col")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    registrations.forget(__file__)


def one(op_type: str, x: Array = X, **attributes: Any) -> ModelProto:
    """A node of domain layers that reads x."""
    node = helper.make_node(op_type, ["x"], ["y"], "n0", domain="layers", **attributes)
    return model([node], [value("x", x.shape, x.dtype)], [value("y", None, x.dtype)])


def ran(
    proto: ModelProto, device: str = "npu2", x: Array = X, **options: Any
) -> tuple[Array, od.InferenceSession]:
    session = od.InferenceSession(proto, device, fallback="error", **options)
    (y,) = session.run(None, {"x": x})
    assert session.last_run is not None and session.last_run.dispatches == 1
    return y, session


def crop() -> None:
    class Crop(od.Layer):
        """Rows and columns of a picture."""

        name = "layers::crop"

        class Params:
            top: int = 0
            left: int = 0
            size: tuple[int, int]

        def shape(self, n: Any) -> Any:
            return n["x"].like((*n["x"].shape[:-2], *self.params.size))

        def global_(self, g: Any) -> None:
            p = self.params
            g.copy(g.y, g.x[..., p.top : p.top + p.size[0], p.left : p.left + p.size[1]])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_moves_of_a_global_layer(device: str, dtype: type) -> None:
    crop()

    class Bytes(od.Layer):
        name = "layers::flipped"
        inputs, outputs = "x:f32|i8", "y"

        def global_(self, g: Any) -> None:
            half = g.x.shape[-1] // 2
            g.copy(g.y[..., :half], g.x[..., half:])
            g.copy(g.y[..., half:], g.x[..., :half])

    x = (100 * X).astype(dtype)
    y, session = ran(one("Flipped", x), device, x)
    assert (y == np.roll(x, 12, -1)).all()
    assert session.placement[0].remark.startswith("its global layer")
    y, _ = ran(one("Crop", top=2, left=3, size=[8, 9]), device)
    assert (y == X[..., 2:10, 3:12]).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float16])
def test_moves_of_one_element(device: str, dtype: type) -> None:
    class Picked(od.Layer):
        name = "layers::picked"
        inputs, outputs = "x:f32|i8|f16", "y z"

        def shape(self, n: Any) -> Any:
            return {"y": n["x"].like(()), "z": n["x"].like((3,))}

        def global_(self, g: Any) -> None:
            g.copy(g.y, g.x[1, 2, 3, 4])
            g.copy(g.z[1], g.x[0, 0, 0, 5])
            g.copy(g.z[::2], g.x[1, 1, ::7, 3][:2])

    x, g = (50 * X).astype(dtype), od.Graph()
    for made, name in zip(g.add_layer("layers::picked", [g.input("x", x.shape, x.dtype)]), "yz", strict=True):
        g.output(made, name)
    y, z = od.InferenceSession(g, device, fallback="error").run(None, {"x": x})
    assert y == x[1, 2, 3, 4]
    assert (z == [x[1, 1, 0, 3], x[0, 0, 0, 5], x[1, 1, 7, 3]]).all()


@pytest.mark.parametrize("device", DEVICES)
def test_a_local_layer_reads_its_parameters(device: str) -> None:
    class Scaled(od.Layer):
        name = "layers::scaled"

        class Params:
            factor: float = 2.0
            shift: int = 0
            twice: bool = False
            mode: Literal["plain", "half"] = "plain"
            weights: tuple[float, ...] = ()
            note: str = ""

        def local(self, t: Any) -> int:
            p = t.params
            assert p == self.params
            factor = p.factor * (2 if p.twice else 1) * (0.5 if p.mode == "half" else 1)
            t.y[:] = t.x * np.float32(factor) + np.float32(p.shift + sum(p.weights) + len(p.note))
            return 0

    y, session = ran(
        one("Scaled", factor=3.0, shift=-2, twice=1, mode="half", weights=[0.5, 4.0], note="äh"), device
    )
    assert (y == X * np.float32(3) + np.float32(4.5)).all()
    assert session.placement[0].reason == "as layers::scaled@1"
    assert (ran(one("Scaled"), device)[0] == X * np.float32(2)).all()


def test_work_is_counted_with_the_parameters_of_the_node() -> None:
    class Modes(od.Layer):
        name = "layers::modes"

        class Params:
            mode: Literal["once", "often"] = "once"

        def local(self, t: Any) -> None:
            y = t.x + 0
            for _ in range(4000 if t.params.mode == "often" else 1):
                y = y + np.float32(1)
            t.y[:] = y

    cycles = {}
    for mode, added in (("once", 1), ("often", 4000)):
        y, session = ran(one("Modes", mode=mode))
        assert np.allclose(y, X + added, rtol=1e-4)
        assert session.last_run is not None
        cycles[mode] = session.last_run.cycles
    assert cycles["often"] > cycles["once"] + 4000  # each addition takes a cycle at least


def test_a_buffer_of_the_core_has_room_for_each_tile() -> None:
    asked: list[tuple[int, ...]] = []

    class Sorted(od.Layer):
        name = "layers::sorted"

        def index_space(self, n: Any) -> Any:
            return n["x"].shape[:-1]

        def access(self, n: Any) -> Any:
            rows = (*range(len(n["x"].shape) - 1), None)
            return {**n.access("x", *rows), **n.access("y", *rows)}

        def get_local_buffer_size(self, split_shape: tuple[int, int, int, int]) -> int:
            asked.append(split_shape)
            return 4 * int(np.prod(split_shape))

        def local(self, t: Any) -> None:
            kept = t.buffer[: t.x.nbytes].view(np.float32).reshape(t.x.shape)
            kept[:] = t.x
            kept.sort(-1)
            t.y[:] = kept

    for device in DEVICES:
        assert (ran(one("Sorted"), device)[0] == np.sort(X, -1)).all()
    assert all(shape[-1] == X.shape[-1] for shape in asked)  # rows are whole
    wide = np.random.default_rng(1).standard_normal((300, 1000)).astype(np.float32)
    assert (ran(one("Sorted", wide), x=wide)[0] == np.sort(wide, -1)).all()


def test_rows_and_columns_stay_whole_where_a_layer_says_so() -> None:
    shapes: list[tuple[int, ...]] = []

    class Whole(od.Layer):
        name = "layers::whole"
        can_split_local_h_w = False
        work: ClassVar[dict[str, float]] = {"op": 1}  # declared: nothing is counted on a few members

        def local(self, t: Any) -> None:
            shapes.append(t.y.shape)
            t.y[:] = t.x

    y, _ = ran(one("Whole"))
    assert (y == X).all() and {shape[-2:] for shape in shapes} == {(20, 24)}


@pytest.mark.parametrize(("rows", "columns"), [(5, 96), (2880, 1)])
def test_a_layer_that_only_reshapes_runs_no_body(rows: int, columns: int) -> None:
    class Folded(od.Layer):
        name = "layers::folded"
        just_reshape = True

        class Params:
            rows: int

        def shape(self, n: Any) -> Any:
            return n["x"].like((self.params.rows, n["x"].size // self.params.rows))

        def local(self, t: Any) -> None:
            raise AssertionError("it runs")

    doubled = helper.make_node("Add", ["y", "y"], ["z"])
    node = helper.make_node("Folded", ["x"], ["y"], domain="layers", rows=rows)
    made = model([node, doubled], [value("x", X.shape)], [value("z", None)])
    z, session = ran(made)
    assert (z == 2 * X.reshape(rows, X.size // rows)).all()
    assert session.placement[0].reason.startswith("no data moves")


def test_whole_rows_in_the_memory_of_the_input() -> None:
    class Turned(od.Layer):
        name = "layers::turned"
        is_share_mem_layer = True

        def index_space(self, n: Any) -> Any:
            return n["x"].shape[:-1]

        def access(self, n: Any) -> Any:
            rows = (*range(len(n["x"].shape) - 1), None)
            return {**n.access("x", *rows), **n.access("y", *rows)}

        def local(self, t: Any) -> None:
            t.y[:] = t.x[..., ::-1]

    node = [helper.make_node("Turned", [a], [b], domain="layers") for a, b in ("xa", "ab", "by")]
    y, session = ran(model(node, [value("x", X.shape)], [value("y", None)]))
    assert (y == X[..., ::-1]).all()
    (executable,) = session.model.executables.values()
    assert executable.device_steps[0].sizes[2] == X.nbytes  # a and b share it


class TestDynamicShapes:
    """Results of which the data decides how much there is."""

    V = X.ravel()[:700]

    @pytest.fixture(autouse=True)
    def kept(self) -> None:
        class Kept(od.Layer):
            """What is above a limit, with its places."""

            name = "layers::kept"
            outputs = "y places:i32"
            output_shape_is_dynamic = True

            class Params:
                limit: float = 0.5

            def shape(self, n: Any) -> Any:
                return {"y": n["x"].like(), "places": ("i32", (n["x"].size, 1))}

            def local(self, t: Any) -> None:
                places = np.flatnonzero(t.x > t.params.limit)
                t.y[: len(places)] = t.x[places]
                t.places[: len(places), 0] = places
                t.resize("y", len(places))
                t.resize("places", (len(places), 1))

    def proto(self, *more: Any, output: str = "y") -> ModelProto:
        node = helper.make_node("Kept", ["x"], ["y", "places"], "n0", domain="layers")
        outputs = [value(output, None), value("places", None, np.int32)]
        return model([node, *more], [value("x", self.V.shape)], outputs)

    @pytest.mark.parametrize("device", DEVICES)
    def test_the_actual_sizes_come_back(self, device: str, tmp_path: Path) -> None:
        compiled = od.compile(self.proto(), device, fallback="error")
        compiled.save(tmp_path / "kept.od")
        for session in (od.InferenceSession(compiled), od.InferenceSession(str(tmp_path / "kept.od"))):
            for seed in range(3):
                x = np.random.default_rng(seed).standard_normal(700).astype(np.float32)
                y, places = session.run(None, {"x": x})
                assert (y == x[x > 0.5]).all() and (places[:, 0] == np.flatnonzero(x > 0.5)).all()
                assert session.last_run is not None and session.last_run.dispatches == 1
            y, places = session.run(None, {"x": np.zeros(700, np.float32)})
            assert y.shape == (0,) and places.shape == (0, 1)

    def test_bound_memory_has_the_planned_size(self) -> None:
        session = od.InferenceSession(self.proto(), fallback="error")
        memory = np.full(700, 7, np.float32)
        binding = session.io_binding()
        binding.bind_cpu_input("x", self.V)
        binding.bind_output("y", "cpu", 0, np.float32, [700], memory.ctypes.data)
        binding.bind_output("places")
        session.run_with_iobinding(binding)
        wanted = self.V[self.V > 0.5]
        assert (memory[: len(wanted)] == wanted).all()
        assert binding.get_outputs()[1].numpy().shape == (len(wanted), 1)

    def test_others_read_it_as_planned(self) -> None:
        made = self.proto(helper.make_node("Neg", ["y"], ["z"]), output="z")
        z, places = od.InferenceSession(made, fallback="error").run(None, {"x": self.V})
        wanted = self.V[self.V > 0.5]
        assert z.shape == (700,) and (z[: len(wanted)] == -wanted).all() and len(places) == len(wanted)

    def test_as_large_as_the_input_unless_shape_says_otherwise(self) -> None:
        class Above(od.Layer):
            name = "layers::above"
            output_shape_is_dynamic = True

            def local(self, t: Any) -> None:
                found = t.x[t.x > 0]
                t.y[: len(found)] = found
                t.resize("y", len(found))

        assert (ran(one("Above", self.V), x=self.V)[0] == self.V[self.V > 0]).all()

    def test_what_fits_no_core_is_refused(self) -> None:
        node = helper.make_node("Kept", ["x"], ["y"], domain="layers")
        made = model([node], [value("x", [100_000])], [value("y", None)])
        with pytest.raises(od.KernelNotSupportedError, match="a shape that data decides"):
            od.compile(made)


def test_a_shape_follows_from_the_value_of_an_input() -> None:
    class First(od.Layer):
        name = "layers::first"
        inputs = "x k:i32"
        host_inputs = "k"

        def shape(self, n: Any) -> Any:
            return n["x"].like((int(n["k"].host_data.ravel()[0]), *n["x"].shape[1:]))

        def global_(self, g: Any) -> None:
            g.copy(g.y, g.x[: g.y.shape[0]])

    node = helper.make_node("First", ["x", "k"], ["y"], domain="layers")
    x = X.reshape(-1, 24)
    made = model([node], [value("x", x.shape), value("k", [1], np.int32)], [value("y", None)])
    session = od.InferenceSession(made, fallback="error")
    for k in (3, 120, 3, 1):
        (y,) = session.run(None, {"x": x, "k": np.asarray([k], np.int32)})
        assert (y == x[:k]).all() and y.shape == (k, 24)


class TestGlobalPrograms:
    @pytest.fixture(autouse=True)
    def halved(self) -> None:
        class Halved(od.Layer):
            name = "layers::halved"

            class Params:
                by: float = 2.0

            def local(self, t: Any) -> None:
                t.y[:] = t.x / np.float32(t.params.by)

    @staticmethod
    def run(program: Any, **more: Any) -> Array:
        names = {"name": "layers::program", "global_": lambda self, g: program(g), **more}
        type("Program", (od.Layer,), {"__module__": __name__, **names})
        return ran(one("Program"))[0]

    def test_parts_go_through_cores_and_come_back(self) -> None:
        def program(g: Any) -> None:
            g.call("layers::halved", {"by": 4.0}, x=g.x[:, :, :10], y=g.y[:, :, 10:])
            g.call("layers::halved", x=g.x[:, :, 10:], y=g.y[:, :, :10])

        wanted = np.concatenate([X[:, :, 10:] / np.float32(2), X[:, :, :10] / np.float32(4)], 2)
        assert (self.run(program) == wanted).all()

    def test_its_own_local_on_a_buffer(self) -> None:
        def program(g: Any) -> None:
            padded = g.buffer((2, 3, 22, 24))
            g.fill(padded[:, :, ::21], -1.0)
            g.copy(padded[:, :, 1:21], g.x)
            g.local(x=padded, y=g.y)

        def shape(self: Any, n: Any) -> Any:
            return n["x"].like((2, 3, 22, 24))

        class Sizes:
            def __call__(self) -> int:
                return X[:, :, :1].nbytes * 22

        def local(self: Any, t: Any) -> None:
            t.y[:] = -t.x

        found = self.run(
            program, shape=shape, local=local, force_use_global_layer=True, get_global_buffer_size=Sizes()
        )
        assert (found == -np.pad(X, ((0, 0), (0, 0), (1, 1), (0, 0)), constant_values=-1)).all()

    def test_views_are_numpys(self) -> None:
        def program(g: Any) -> None:
            g.copy(g.y[0].transposed(0, 2, 1), g.x[1, :: -1 + 2].transposed(0, 2, 1))
            g.copy(g.y[1, :2, 3], g.x[0, 1:, -1])
            g.copy(g.y[1, :2, :3], g.x[0, 1:, :3])
            g.copy(g.y[1, :2, 4::2], g.x[0, :2, 4::2])
            g.copy(g.y[1, :2, 5::2], np.ones((2, 8, 24), np.float32))
            g.fill(g.y[1, -1:], 0.5)

        wanted = np.empty_like(X)
        wanted[0] = X[1]
        wanted[1, :2, 3], wanted[1, :2, :3] = X[0, 1:, -1], X[0, 1:, :3]
        wanted[1, :2, 4::2], wanted[1, :2, 5::2] = X[0, :2, 4::2], 1
        wanted[1, -1:] = 0.5
        assert (self.run(program) == wanted).all()

    def test_a_layer_that_does_not_fit_a_core_goes_its_global_way(self) -> None:
        class Summed(od.Layer):
            """The sum of all; a member has the whole tensor."""

            name = "layers::summed"

            def shape(self, n: Any) -> Any:
                return n["x"].like((1,))

            def index_space(self, n: Any) -> Any:
                return (1,)

            def access(self, n: Any) -> Any:
                return {**n.access("x", *[n.whole()] * n["x"].rank), **n.access("y", n.whole())}

            def local(self, t: Any) -> None:
                t.y[0] = t.x.sum(dtype=np.float32)

            def get_global_buffer_size(self) -> int:
                return 64

            def global_(self, g: Any) -> None:
                parts = g.buffer(16)
                step = g.x.shape[0] // 16
                for i in range(16):
                    g.local(x=g.x[i * step : (i + 1) * step], y=parts[i : i + 1])
                g.local(x=parts, y=g.y)

        small, large = (np.arange(n, dtype=np.float32) % 5 for n in (800, 80_000))
        (y,), session = ran(one("Summed", small), x=small)
        assert y == small.sum() and not session.placement[0].remark
        (y,), session = ran(one("Summed", large), x=large)
        assert y == large.sum()
        assert "operand x (access whole) needs 320,000 bytes" in session.placement[0].remark


def test_rows_that_are_open_are_refused_where_a_layer_takes_none() -> None:
    class Fixed(od.Layer):
        name = "layers::fixed"
        can_h_w_dynamic = False

        def local(self, t: Any) -> None:
            t.y[:] = t.x

    def sized(*shape: int | str) -> ModelProto:
        node = helper.make_node("Fixed", ["x"], ["y"], domain="layers")
        return model([node], [value("x", shape)], [value("y", None)])

    assert (ran(sized("n", 3, 20, 24))[0] == X).all()
    session = od.InferenceSession(sized(2, 3, "h", 24), fallback="error")
    with pytest.raises(od.KernelDynamicShapeError, match=r"2, 3, h, 24.*can_h_w_dynamic"):
        session.run(None, {"x": X})


def test_reports_call_a_layer_what_it_says() -> None:
    class Named(od.Layer):
        name = "layers::named"

        def get_name(self) -> str:
            return f"copy of {self.layer.name}"

        def local(self, t: Any) -> None:
            t.y[:] = t.x

    _, session = ran(one("Named"))
    assert session.placement[0].reason == "as copy of n0"


def test_the_latest_of_a_name_holds_and_bases_are_not_known() -> None:
    class Base(od.Layer):
        by = 1

        def local(self, t: Any) -> None:
            t.y[:] = t.x + self.by

    class First(Base):
        name = "layers::plus"

    class Second(Base):
        name = "layers::plus"
        by = 2

    assert (ran(one("Plus"))[0] == X + np.float32(2)).all()
    assert sum("layers::plus" in name for name in od.kernels()) == 1
