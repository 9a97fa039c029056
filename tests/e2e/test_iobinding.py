# SPDX-License-Identifier: Apache-2.0
"""Bound inputs and outputs: what onnxruntime's ``IOBinding`` gives, written into the caller's memory."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, parser

import onedispatch as od
from onedispatch.dispatch.runtime import device
from tests.ops.edits import patched_arguments

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

Array = np.ndarray[Any, Any]
HEAD = '<ir_version: 8, opset_import: ["": 17]> '
TWO = "g (float[N, 5] a, float[N, 5] b) => (float[N, 5] s, float[N, 5] d) { s = Add(a, b) d = Sub(a, b) }"
# Relu and Abs run on the device, the Casts in between on the host.
MIXED = """g (float[2, 5] x) => (float[2, 5] r, float[2, 5] h, float[2, 5] y)
    { r = Relu(x) w = Cast <to = 11> (r) h = Cast <to = 1> (w) n = Neg(x) y = Sub(n, h) }"""
# Outputs that are inputs, constants, or twice the same.
PASSED = """g (float[2, 5] x) => (float[2, 5] same, float[2, 5] r, float[10] flat, float[2] c)
    <float[2] k = {2, 3}> { same = Identity(x) r = Relu(x) flat = Reshape(r, t) c = Mul(k, k) }"""


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


def passed() -> onnx.ModelProto:
    return model(PASSED.replace("<float[2] k", "<int64[1] t = {10}, float[2] k"))


def reference(proto: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def random(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def bind(binding: Any, name: str, memory: Array) -> None:
    """Binds an output to an array's memory, as programs for onnxruntime do."""
    binding.bind_output(name, "cpu", 0, memory.dtype.type, memory.shape, memory.ctypes.data)


Session = Callable[[onnx.ModelProto], Any]
ENGINES: dict[str, Session] = {
    "onnxruntime": lambda m: onnxruntime.InferenceSession(m.SerializeToString()),
    "onedispatch": lambda m: od.InferenceSession(m, fallback="error"),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_program_for_onnxruntime(engine: str) -> None:
    """The same calls give the same on both: the names, the order, and which memory is written."""
    session = ENGINES[engine](model(TWO))
    a, b = random(1, 3, 5), random(2, 3, 5)
    difference = np.zeros((3, 5), np.float32)
    binding = session.io_binding()
    assert binding.get_outputs() == []
    binding.bind_cpu_input("a", a)
    binding.bind_input("b", "cpu", 0, np.float32, [3, 5], b.ctypes.data)
    bind(binding, "d", difference)
    binding.bind_output("s")
    binding.synchronize_inputs()
    assert session.run_with_iobinding(binding) is None
    binding.synchronize_outputs()
    np.testing.assert_array_equal(difference, a - b)
    first, second = binding.get_outputs()  # in the order in which they were bound
    np.testing.assert_array_equal(first.numpy(), a - b)
    np.testing.assert_array_equal(second.numpy(), a + b)
    assert second.shape() == [3, 5] and second.data_type() == "tensor(float)"
    assert second.device_name() == "cpu" and second.is_tensor() and second.has_value()
    assert first.data_ptr() == difference.ctypes.data
    a *= 2  # what is bound is read when it runs
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(difference, a - b)
    copied = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(copied[1], a + b)
    binding.clear_binding_outputs()
    assert binding.get_outputs() == []
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type([3, 5], np.float32)
    binding.bind_ortvalue_input("a", onnxruntime.OrtValue.ortvalue_from_numpy(b))
    binding.bind_ortvalue_output("s", value)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(value.numpy(), b + b)
    binding.clear_binding_inputs()
    with pytest.raises((RuntimeError, od.InputError)):
        session.run_with_iobinding(binding)


def test_without_memory_every_run_makes_new_arrays() -> None:
    session = od.InferenceSession(model(TWO))
    binding = session.io_binding()
    kept = []
    binding.bind_output("s")
    for seed, rows in enumerate((2, 3, 2)):
        a = random(seed, rows, 5)
        binding.bind_cpu_input("a", a)
        binding.bind_cpu_input("b", a)
        session.run_with_iobinding(binding)
        kept.append((a + a, binding.get_outputs()[0].numpy()))
    for expected, array in kept:
        np.testing.assert_array_equal(array, expected)
    report = session.last_run
    assert report is not None and report.dispatches == 1 and report.cycles > 0


def test_outputs_become_inputs_of_the_next_run() -> None:
    session = od.InferenceSession(model(TWO))
    binding = session.io_binding()
    one = np.ones((1, 5), np.float32)
    binding.bind_cpu_input("a", one)
    binding.bind_cpu_input("b", one)
    binding.bind_output("s")
    for _ in range(4):
        session.run_with_iobinding(binding)
        binding.bind_ortvalue_input("a", binding.get_outputs()[0])
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], 5 * one)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "uint8", "int32", "bool"])
@pytest.mark.parametrize("shape", [(3, 7), (), (0, 3), (2, 4)])
def test_types_and_padded_rows(dtype: str, shape: tuple[int, ...]) -> None:
    """Rows of narrow types are padded in device memory, and not in the caller's."""
    op, made = "Transpose" if len(shape) == 2 else "Identity", shape[::-1]
    proto = model(f"g ({dtype}{list(shape) or ''} x) => ({dtype}{list(made) or ''} y) {{ y = {op}(x) }}")
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    x = np.asarray(np.arange(int(np.prod(shape))).reshape(shape) % 2).astype(kind)
    session = od.InferenceSession(proto)
    memory = np.ones((int(np.prod(shape)) + 2,), kind)  # one element before and one behind
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    number = onnx.helper.np_dtype_to_tensor_dtype(kind)
    binding.bind_output("y", "cpu", 0, number, made, memory.ctypes.data + kind.itemsize)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(memory[1:-1].reshape(made), x.T)
    assert memory[0] == memory[-1] == 1


def test_host_regions_between_device_steps() -> None:
    proto, x = model(MIXED), random(3, 2, 5)
    session = od.InferenceSession(proto)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    memory = {name: np.zeros((2, 5), np.float32) for name in "rhy"}
    for name, array in memory.items():
        binding.bind_ortvalue_output(name, array)
    for _ in range(2):
        session.run_with_iobinding(binding)
        for array, expected in zip(memory.values(), reference(proto, {"x": x}), strict=True):
            np.testing.assert_array_equal(array, expected)
        np.negative(x, out=x)
    assert {row.device for row in session.placement} == {"npu", "cpu"}


@pytest.mark.parametrize("bound", [False, True])
def test_an_output_that_is_an_input_where_another_output_lies(bound: bool) -> None:
    proto, x = passed(), random(6, 2, 5)
    expected = reference(proto, {"x": x.copy()})
    session = od.InferenceSession(proto)
    binding, memory = session.io_binding(), np.zeros((2, 5), np.float32)
    binding.bind_cpu_input("x", x)
    bind(binding, "r", x)
    bind(binding, "same", memory) if bound else binding.bind_output("same")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(x, expected[1])
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[1], expected[0])


@pytest.mark.parametrize("text", [MIXED, TWO])
def test_memory_that_inputs_have_too(text: str) -> None:
    """An output may lie where an input lies, even if steps read the input after it is made."""
    proto = model(text)
    session = od.InferenceSession(proto)
    first = proto.graph.output[0].name
    feed = {value.name: random(4, 2, 5) for value in proto.graph.input}
    expected = reference(proto, {name: array.copy() for name, array in feed.items()})
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    bind(binding, first, next(iter(feed.values())))
    others = [value.name for value in proto.graph.output][1:]
    for name in others:
        binding.bind_output(name)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(next(iter(feed.values())), expected[0])
    for value, array in zip(binding.get_outputs()[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(value.numpy(), array)


@pytest.mark.parametrize("bound", ["", "same", "r", "flat", "same r flat c"])
def test_outputs_that_are_inputs_constants_or_twice_the_same(bound: str) -> None:
    proto, x = passed(), random(5, 2, 5)
    session = od.InferenceSession(proto)
    expected = reference(proto, {"x": x})
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    memory = []
    for value, array in zip(proto.graph.output, expected, strict=True):
        if value.name in bound.split():
            memory.append(np.zeros_like(array))
            bind(binding, value.name, memory[-1])
        else:
            binding.bind_output(value.name)
    session.run_with_iobinding(binding)
    outputs = binding.get_outputs()
    for value, array in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(value.numpy(), array)
    # What no memory is bound to stays as it is when bound memory is written.
    for array in (x, *memory):
        array[...] = 99
    for info, value, array in zip(proto.graph.output, outputs, expected, strict=True):
        if info.name not in bound.split():
            np.testing.assert_array_equal(value.numpy(), array)


@pytest.fixture(scope="module")
def two() -> od.InferenceSession:
    return od.InferenceSession(model(TWO))


X = np.zeros((2, 5), np.float32)
READ_ONLY = np.zeros((2, 5), np.float32)
READ_ONLY.flags.writeable = False
ADDRESS = X.ctypes.data


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda b: b.bind_cpu_input("z", X), r"input.*'z'.*\['a', 'b'\]"),
        (lambda b: b.bind_cpu_input(3, X), r"input.*3.*\['a', 'b'\]"),
        (lambda b: b.bind_cpu_input("a", X.astype(np.float64)), "'a'.*float64.*float32"),
        (lambda b: b.bind_cpu_input("a", ((0.0,) * 5,) * 2), "'a'.*tuple"),
        (lambda b: b.bind_cpu_input("a", [[0.0] * 5, [0.0]]), "'a'.*a list: ValueError"),
        (lambda b: b.bind_cpu_input("a", X[0]), r"'a'.*\[5\].*N, 5"),
        (lambda b: b.bind_input("a", "cuda", 0, np.float32, (2, 5), ADDRESS), "'a'.*'cuda'.*'cpu'"),
        (lambda b: b.bind_input("a", "cpu", 1, np.float32, (2, 5), ADDRESS), "'a'.*1.*'cpu', 0"),
        (lambda b: b.bind_input("a", "cpu", 0, np.int8, (2, 5), ADDRESS), "'a'.*int8.*float32"),
        (lambda b: b.bind_input("a", "cpu", 0, TensorProto.INT8, (2, 5), ADDRESS), "'a'.*3.*float32"),
        (lambda b: b.bind_input("a", "cpu", 0, 999, (2, 5), ADDRESS), "'a'.*999.*TensorProto"),
        (lambda b: b.bind_input("a", "cpu", 0, "no type", (2, 5), ADDRESS), "'a'.*no type.*TensorProto"),
        (lambda b: b.bind_input("a", "cpu", 0, np.float32, (2, 4), ADDRESS), r"'a'.*\[2, 4\]"),
        (lambda b: b.bind_input("a", "cpu", 0, np.float32, (-2, 5), ADDRESS), "'a'.*-2"),
        (lambda b: b.bind_input("a", "cpu", 0, np.float32, 5, ADDRESS), "'a'.*5.*list"),
        (lambda b: b.bind_input("a", "cpu", 0, np.float32, (1 << 40, 5), ADDRESS), "'a'.*bytes"),
        (lambda b: b.bind_input("a", "cpu", 0, np.float32, (2, 5), 0), "'a', buffer_ptr.*0"),
        (lambda b: b.bind_input("a", "cpu", 0, np.float32, (2, 5), None), "'a', buffer_ptr.*None"),
        (lambda b: b.bind_ortvalue_input("a", 5), "'a'.*int.*OrtValue"),
        (lambda b: b.bind_output("z"), r"output.*'z'.*\['s', 'd'\]"),
        (lambda b: b.bind_output("s", "npu"), "'s'.*'npu'.*'cpu'"),
        (lambda b: b.bind_output("s", buffer_ptr=ADDRESS), "'s'.*element_type"),
        (lambda b: b.bind_output("s", element_type=np.int8), "'s'.*int8"),
        (lambda b: b.bind_output("s", shape=[5]), r"'s'.*\[5\]"),
        (lambda b: b.bind_output("s", "cpu", 0, np.float32, [5], ADDRESS), r"'s'.*\[5\]"),
        (lambda b: b.bind_ortvalue_output("s", READ_ONLY), "'s'.*read-only"),
        (lambda b: b.bind_ortvalue_output("s", np.zeros((5, 2), np.float32).T), "'s'.*strides.*contiguous"),
        (lambda b: b.bind_ortvalue_output("s", X.astype(np.float16)), "'s'.*float16.*float32"),
        (lambda b: b.bind_ortvalue_output("s", X[:, :4].copy()), r"'s'.*\[2, 4\]"),
        (
            lambda b: b.bind_ortvalue_output(
                "s", onnxruntime.OrtValue.ortvalue_from_numpy(X.astype(np.int8))
            ),
            "'s'.*int8",
        ),
        (lambda b: b.bind_output("s") or b.copy_outputs_to_cpu(), "'s'.*run_with_iobinding"),
        (lambda b: b.bind_output("s") or b.get_outputs()[0].shape(), "'s'.*run_with_iobinding"),
        (lambda b: pickle.dumps(b), "IOBinding.*bind it anew"),
        (lambda b: copy.copy(b), "IOBinding.*bind it anew"),
    ],
)
def test_mistakes_are_explained(two: od.InferenceSession, call: Callable[[Any], Any], text: str) -> None:
    binding = two.io_binding()
    with pytest.raises(od.InputError, match=f"(?is){text}"):
        call(binding)


def test_runs_of_what_is_not_bound(two: od.InferenceSession) -> None:
    binding = two.io_binding()
    binding.bind_cpu_input("a", X)
    with pytest.raises(od.InputError, match="no 'b'"):
        two.run_with_iobinding(binding)
    binding.bind_cpu_input("b", X)
    with pytest.raises(od.InputError, match="with bind_output"):
        two.run_with_iobinding(binding)
    with pytest.raises(od.InputError, match="another session"):
        od.InferenceSession(model(TWO)).run_with_iobinding(binding)
    with pytest.raises(od.InputError, match=r"a dict.*io_binding"):
        two.run_with_iobinding({})  # type: ignore[arg-type]


def test_memory_of_another_shape_than_the_result_stays_as_it_is(two: od.InferenceSession) -> None:
    binding, memory = two.io_binding(), np.full((4, 5), 7, np.float32)
    binding.bind_cpu_input("a", X)
    binding.bind_cpu_input("b", X)
    bind(binding, "s", memory)  # fits the declared shape: N is open
    with pytest.raises(od.InputError, match=r"'s'.*\[4, 5\].*\[2, 5\]"):
        two.run_with_iobinding(binding)
    assert (memory == 7).all()
    bind(binding, "s", memory[:2])
    two.run_with_iobinding(binding)
    assert (memory[:2] == 0).all() and (memory[2:] == 7).all()


def test_outputs_that_the_transaction_does_not_write_are_an_error() -> None:
    proto = model("g (float[64] x) => (float[64] y) { y = Relu(x) }")
    compiled = od.compile(proto)
    head = bytearray(compiled.transaction[:16])
    head[8:16] = (0).to_bytes(4, "little") + (16).to_bytes(4, "little")  # no operations
    session = od.InferenceSession(compiled.with_transaction(bytes(head)))
    binding, memory = session.io_binding(), np.full(64, 7, np.float32)
    binding.bind_cpu_input("x", np.ones(64, np.float32))
    bind(binding, "y", memory)
    with pytest.raises(od.SimulationError, match=r"never wrote: y.*256 of 256"):
        session.run_with_iobinding(binding)
    assert (memory == 7).all()


@pytest.mark.parametrize("bound", [False, True])
def test_no_run_of_a_session_inside_another(monkeypatch: pytest.MonkeyPatch, bound: bool) -> None:
    """What a signal handler would do; the session goes on after it."""
    session = od.InferenceSession(model(TWO))
    binding = session.io_binding()
    binding.bind_cpu_input("a", X)
    binding.bind_cpu_input("b", X)
    binding.bind_output("s")
    feed = {"a": X, "b": X}
    execute = device.LoadedStep._execute

    def nested(step: Any) -> Any:
        session.run(None, feed) if bound else session.run_with_iobinding(binding)
        return execute(step)

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(device.LoadedStep, "_execute", nested)
            with pytest.raises(od.DeviceError, match="under way"):
                session.run_with_iobinding(binding) if bound else session.run(None, feed)
        session.run_with_iobinding(binding)
        assert (session.run(None, feed)[0] == 0).all()


def test_bindings_of_several_threads() -> None:
    session = od.InferenceSession(model(TWO))
    wrong: list[int] = []

    def work(seed: int) -> None:
        a, memory = random(seed, 2 + seed % 2, 5), np.zeros((2 + seed % 2, 5), np.float32)
        binding = session.io_binding()
        binding.bind_cpu_input("a", a)
        binding.bind_cpu_input("b", a)
        bind(binding, "s", memory)
        for _ in range(100):
            memory[...] = 0
            session.run_with_iobinding(binding)
            if not np.array_equal(memory, a + a):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_sequences_and_strings() -> None:
    proto = model(
        "g (seq(float[2]) q, string[2] t) => (seq(float[2]) p, string[2] u)"
        " { p = Identity(q) u = Identity(t) }"
    )
    session = od.InferenceSession(proto)
    binding = session.io_binding()
    binding.bind_cpu_input("q", [np.ones(2, np.float32)])
    binding.bind_cpu_input("t", np.array(["a", "bc"]))
    binding.bind_output("p")
    binding.bind_output("u")
    with pytest.raises(od.InputError, match=r"'u'.*Use bind_output"):
        binding.bind_ortvalue_output("u", np.array(["", ""], object))
    with pytest.raises(od.InputError, match=r"'u'.*address"):
        binding.bind_output("u", "cpu", 0, object, [2], ADDRESS)
    session.run_with_iobinding(binding)
    listed, strings = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(listed[0], np.ones(2, np.float32))
    assert list(strings) == ["a", "bc"]
    assert not binding.get_outputs()[0].is_tensor()


# -- memory of the caller's that the simulator works in ---------------------------------------------

LARGE = "g (float[64, 256] x) => (float[64, 256] y) { y = Relu(x) }"


@pytest.mark.parametrize("record", [True, False, "verify"])
def test_large_arrays_are_read_and_written_where_they_lie(record: Any) -> None:
    session = od.InferenceSession(model(LARGE), fallback="error", record=record)
    binding, x, y = session.io_binding(), random(1, 64, 256), np.zeros((64, 256), np.float32)
    binding.bind_cpu_input("x", x)
    bind(binding, "y", y)
    for seed in range(5):
        x[...] = random(seed, 64, 256)
        session.run_with_iobinding(binding)
        assert (y == np.maximum(x, 0)).all()
        (again,) = session.run(None, {"x": x})
        assert (again == y).all() and not np.may_share_memory(again, y)
    assert (x == random(4, 64, 256)).all()


def test_an_array_may_be_input_and_output() -> None:
    session = od.InferenceSession(model(LARGE), fallback="error")
    binding, memory = session.io_binding(), np.zeros((64, 256), np.float32)
    binding.bind_cpu_input("x", memory)
    bind(binding, "y", memory)
    for seed in range(5):
        memory[...] = random(seed, 64, 256)
        session.run_with_iobinding(binding)
        assert (memory == np.maximum(random(seed, 64, 256), 0)).all()


@pytest.mark.parametrize("which", [0, 8, -1])
def test_no_transaction_writes_into_an_input(which: int) -> None:
    """An argument exchanged, results and input too; and memory that cannot be written."""
    right = od.compile(model(LARGE), fallback="error")
    edits = list(patched_arguments(right.transaction, 2))
    session = od.InferenceSession(right.with_transaction(edits[which].transaction))
    content = random(1, 64, 256).tobytes()
    for _ in range(4):
        with contextlib.suppress(od.SimulationError):
            session.run(None, {"x": np.frombuffer(content, np.float32).reshape(64, 256)})
        assert content == random(1, 64, 256).tobytes()
