# SPDX-License-Identifier: Apache-2.0
"""Nothing but ``OneDispatchError`` leaves the package, whatever is given to it or raised inside it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.dispatch import compile as compile_passes
from onedispatch.dispatch.artifact import container, loading, model
from onedispatch.dispatch.compiler import emit, phases, sizes
from onedispatch.dispatch.host import engines
from onedispatch.dispatch.host import regions as host
from onedispatch.dispatch.runtime import device, session
from onedispatch.operators.declarations import registry
from onedispatch.operators.declarations.tensor import Unsupported
from onedispatch.operators.interface import operator as base
from onedispatch.operators.kernels.elementwise import Eltwise
from onedispatch.operators.kernels.movement import Move
from onedispatch.transactions.base.boundary import guarded, public
from onedispatch.transactions.base.host import MOST_THREADS
from tests.host_nodes import on_host
from tests.outcomes import refused_or_taken

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def proto(*op_types: str, batch: int | str = 2) -> onnx.ModelProto:
    """A chain of one-input operators over [batch, 4]; "host": what stays there."""
    names = ["x", *(f"v{i}" for i in range(1, len(op_types))), "y"]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [batch, 4]) for n in ("x", "y")]
    nodes: list[onnx.NodeProto] = []
    for i, op in enumerate(op_types):
        if op == "host":
            nodes += on_host(names[i], names[i + 1], f"{op}{i}")
        else:
            nodes.append(helper.make_node(op, [names[i]], [names[i + 1]], name=f"{op}{i}"))
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def use_everything(folder: Path) -> None:
    """Every stage: compile, save, load, run on the device and on the host."""
    path = folder / "m.od"
    compiled = od.compile(proto("Relu", "host", "Neg", batch="N"))
    first = od.InferenceSession(compiled)
    first.run(None, {"x": X})
    first.model.save(path)
    again = od.InferenceSession(od.load(path))
    again.run(None, {"x": X})
    assert again.placement and again.last_run


STAGES = {
    "import": (compile_passes, "import_model"),
    "fold": (compile_passes, "fold_constants"),
    "specialise": (compile_passes, "specialise"),
    "infer": (sizes, "infer_values"),
    "map": (phases, "map_graph"),
    "merge": (phases, "merged"),
    "partition": (phases, "partition"),
    "outputs": (phases, "route_passthrough_outputs"),
    "plan": (emit.memory, "plan"),
    "emit": (phases, "emit_region"),
    "transaction": (base, "emit_nests"),
    "select": (base, "select"),
    "fuse": (emit, "fuse"),
    "serialise": (model, "executable_to"),
    "write": (container.Writer, "write"),
    "read": (container.Reader, "_described"),
    "deserialise": (loading, "executable_from"),
    "bind": (session, "checked_feed"),
    "device": (device, "_buffer"),
    "run": (device.LoadedStep, "_execute"),
    "report": (session, "summed"),
    "host": (host, "sub_model"),
    "onnxruntime": (engines.Runtime, "run"),
}
RAISED = (
    KeyError,
    MemoryError,
    RecursionError,
    ZeroDivisionError,
    OSError,
    UnicodeError,
    StopIteration,
    AssertionError,
)


@contextlib.contextmanager
def broken(monkeypatch: pytest.MonkeyPatch, stage: str, error: type[BaseException]) -> Iterator[None]:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error("thrown on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(*STAGES[stage], fail)
        yield


@pytest.mark.daily(3)
@pytest.mark.parametrize("stage", STAGES)
def test_what_a_stage_throws_leaves_typed_and_with_its_cause(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in RAISED:
        with broken(monkeypatch, stage, error), pytest.raises(od.OneDispatchError) as caught:
            use_everything(tmp_path)
        chain, seen = caught.value, []
        while chain is not None:
            seen.append(type(chain))
            chain = chain.__cause__ or chain.__context__
        assert error in seen, f"{stage} swallows {error.__name__}: {seen}"
        assert str(caught.value)
    use_everything(tmp_path)  # and nothing is left behind


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("stage", STAGES)
def test_what_is_no_error_passes(
    stage: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broken(monkeypatch, stage, error), pytest.raises(error):
        use_everything(tmp_path)


def test_internal_errors_say_where_and_what(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with broken(monkeypatch, "partition", KeyError), pytest.raises(od.InternalError) as caught:
        use_everything(tmp_path)
    text = str(caught.value)
    assert "dispatch/compiler/phases.py:" in text and "KeyError" in text and "report" in text
    with broken(monkeypatch, "plan", MemoryError), pytest.raises(od.ResourceError, match="memory"):
        use_everything(tmp_path)


# -- code of others ---------------------------------------------------------------------------


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Registers a mapping function for Relu, for one test."""
    registry.mapping_for("", "Relu")

    def register(function: Callable[..., Any]) -> None:
        row = registry.OpMapping("", "Relu", ("float32",), "", function)
        monkeypatch.setitem(registry._MAPPINGS, ("", "Relu"), row)

    return register


@pytest.mark.parametrize("fallback", ["cpu", "error"])
def test_a_mapping_function_that_raises_is_named(plugin: Any, fallback: str) -> None:
    def careless(node: Any, lowering: Any) -> None:
        raise IndexError("no such input")

    plugin(careless)
    with pytest.raises(
        od.InternalError, match=r"node Relu0 \(Relu\).*careless \(.*test_boundary.py:\d+\)"
    ) as e:
        od.compile(proto("Relu"), fallback=fallback)
    assert isinstance(e.value.__cause__, IndexError)


@pytest.mark.parametrize(
    "method", ["nests", "arg_map", "transaction", "explain", "count_macs", "super_kernel_params"]
)
def test_an_operator_that_raises_is_named(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    def careless(self: Any, *args: Any) -> Any:
        raise AttributeError("thrown on purpose")

    monkeypatch.setattr(Eltwise, method, careless)
    with pytest.raises(od.InternalError, match=r"Relu0.*(Eltwise|elementwise.py)"):
        od.compile(proto("Relu"))


@pytest.mark.parametrize("method", ["arg_map", "transaction", "explain", "count_macs", "super_kernel_params"])
def test_an_operator_that_fails_late_is_refused(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    def late(self: Any) -> Any:
        raise Unsupported("too late", "earlier ones")

    monkeypatch.setattr(Eltwise, method, late)
    (row,) = od.compile(proto("Relu")).placement
    assert row.device == "cpu" and "too late" in row.reason
    with pytest.raises(od.UnsupportedModelError, match="too late"):
        od.compile(proto("Relu"), fallback="error")


@pytest.mark.parametrize("method", ["arg_map", "transaction", "explain", "count_macs", "super_kernel_params"])
def test_a_copy_of_an_output_that_fails_late_is_left_to_the_host(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def late(self: Any) -> Any:
        raise Unsupported("too late", "earlier ones")

    monkeypatch.setattr(Move, method, late)
    model = proto("Relu")
    model.graph.output.append(model.graph.input[0])
    model.graph.initializer.append(numpy_helper.from_array(X + 1, "k"))
    model.graph.output.append(helper.make_tensor_value_info("k", TensorProto.FLOAT, [2, 4]))
    y, x, k = od.InferenceSession(model).run(None, {"x": X})
    for got, wanted in ((y, np.maximum(X, 0)), (x, X), (k, X + 1)):
        np.testing.assert_array_equal(got, wanted)
    with pytest.raises(od.UnsupportedModelError, match="too late"):
        od.compile(model, fallback="error")


def test_an_output_that_nobody_makes(plugin: Any) -> None:
    plugin(lambda node, lowering: None)
    with pytest.raises(od.InternalError, match="output 'y' that no operator makes"):
        od.compile(proto("Relu"))

    def from_nowhere(node: Any, lowering: Any) -> None:
        lowering.alias(node.outputs[0], lowering.temp(np.float32, (2, 4)))

    plugin(from_nowhere)
    with pytest.raises(od.InternalError, match="that nothing makes"):
        od.compile(proto("Relu"))


# -- arguments --------------------------------------------------------------------------------

ODD: list[Any] = [
    None, 0, -1, 1 << 40, 1 << 70, 1.5, float("nan"), float("inf"), True, "", ".", "a\0b", "npu9", "x" * 5000,
    b"", b"abc", [], [1], [None], {}, {"x": 1}, {1: 2}, {"x": "ab"}, {"x": [[1]]}, {"x": [-1]},
    {"x": [1 << 70]}, set(), object(), int, len, np.float32(1), np.int64(4), np.array([1, 2]), np.array(True),
    np.array("a"), np.zeros((2, 3)), (1, 2), range(3), memoryview(b"ab"), 1j, Ellipsis,
]  # fmt: skip


SESSION: dict[str, Callable[[onnx.ModelProto, od.CompiledModel, Any], Any]] = {
    "compile": lambda m, c, odd: od.compile(odd),
    **{
        f"compile {name}": lambda m, c, odd, name=name: od.compile(m, **{name: odd})
        for name in ("device", "precision", "fallback", "shapes", "cache_size")
    },
    **{
        f"session {name}": lambda m, c, odd, name=name: od.InferenceSession(c, **{name: odd})
        for name in ("device", "precision", "fallback", "threads")
    },
    "run names": lambda m, c, odd: od.InferenceSession(c).run(odd, {"x": X}),
    "run feed": lambda m, c, odd: od.InferenceSession(c).run(None, odd),
    "run value": lambda m, c, odd: od.InferenceSession(c).run(None, {"x": odd}),
    "save": lambda m, c, odd: c.save(odd),
    "load": lambda m, c, odd: od.load(odd),
    "transaction": lambda m, c, odd: od.InferenceSession(c.with_transaction(odd)).run(None, {"x": X}),
    "prepare": lambda m, c, odd: od.backend.prepare(m, odd),
    "prepare device": lambda m, c, odd: od.backend.prepare(m, npu_device=odd),
    "run_model": lambda m, c, odd: od.backend.run_model(m, odd),
    "run_node": lambda m, c, odd: od.backend.run_node(odd, [X]),
    "run_node inputs": lambda m, c, odd: od.backend.run_node(m.graph.node[0], odd),
    "run_node opset": lambda m, c, odd: od.backend.run_node(m.graph.node[0], [X], opset_version=odd),
    "supports_device": lambda m, c, odd: od.backend.supports_device(odd),
}


OWN = "OneDispatchExecutionProvider"
SESSION |= {  # under onnxruntime's names
    **{
        f"session {name}": lambda m, c, odd, name=name: od.InferenceSession(c, **{name: odd})
        for name in ("sess_options", "providers", "provider_options", "enable_fallback")
    },
    "session by position": lambda m, c, odd: od.InferenceSession(c, od.SessionOptions(), odd, odd),
    "provider options": lambda m, c, odd: od.InferenceSession(c, providers=[OWN], provider_options=odd),
    "one provider": lambda m, c, odd: od.InferenceSession(c, providers=[(OWN, odd)]),
    "an option": lambda m, c, odd: od.InferenceSession(c, providers=[(OWN, {"threads": odd})]),
    "set_providers": lambda m, c, odd: od.InferenceSession(c).set_providers(odd, odd),
    **{
        f"options {name}": lambda m, c, odd, name=name: setattr(od.SessionOptions(), name, odd)
        for name in ("intra_op_num_threads", "execution_mode", "enable_profiling", "profile_file_prefix")
    },
    "entry": lambda m, c, odd: od.SessionOptions().add_session_config_entry(odd, odd),
    "no entry": lambda m, c, odd: od.RunOptions().get_run_config_entry(odd),
    "dimension": lambda m, c, odd: od.SessionOptions().add_free_dimension_override_by_name("N", odd),
    "provider": lambda m, c, odd: od.SessionOptions().add_provider(OWN, odd),
    "run options": lambda m, c, odd: od.InferenceSession(c).run(None, {"x": X}, odd),
    "run_async": lambda m, c, odd: od.InferenceSession(c).run_async(odd, odd, lambda *_: None, odd, odd),
    "run values": lambda m, c, odd: od.InferenceSession(c).run_with_ort_values(odd, odd),
    "value": lambda m, c, odd: od.OrtValue.ortvalue_from_numpy(odd),
    "value elsewhere": lambda m, c, odd: od.OrtValue.ortvalue_from_numpy(X, odd, odd),
    "value of shape": lambda m, c, odd: od.OrtValue.ortvalue_from_shape_and_type(odd, np.float32),
    "value of type": lambda m, c, odd: od.OrtValue.ortvalue_from_shape_and_type([2], odd),
    "value as type": lambda m, c, odd: od.OrtValue.ortvalue_from_numpy_with_onnx_type(X, odd),
    "value of another": lambda m, c, odd: od.OrtValue.from_dlpack(odd),
    "value written": lambda m, c, odd: od.OrtValue.ortvalue_from_numpy(X.copy()).update_inplace(odd),
    "values copied": lambda m, c, odd: od.copy_tensors(odd, odd),
    "severity": lambda m, c, odd: (
        od.set_default_logger_severity(odd),
        od.set_default_logger_severity(od.LoggingLevel.WARNING),
    ),
    "seed": lambda m, c, odd: od.set_seed(odd),
}


@pytest.mark.filterwarnings("ignore::onedispatch.IgnoredOptionWarning")
@pytest.mark.parametrize("name", SESSION)
def test_odd_arguments_of_models_and_sessions(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    relu = proto("Relu")
    compiled = od.compile(relu)
    for odd in ODD:
        refused_or_taken(partial(SESSION[name], relu, compiled, odd))


def test_the_arguments_that_hostile_use_found() -> None:
    relu = proto("Relu")
    for options, text in (
        ({"threads": 1 << 40}, "threads"),
        ({"shapes": 5}, "shapes"),
        ({"cache_size": "many"}, "cache_size"),
        ({"device": 5}, "device"),
    ):
        with pytest.raises((od.InputError, od.DeviceError), match=text):
            od.InferenceSession(relu, **options)
    with pytest.raises(od.InputError, match="output_names"):
        od.InferenceSession(relu).run(5, {"x": X})
    with pytest.raises(od.InputError, match="missing a required argument"):
        od.InferenceSession(relu).run()
    od.InferenceSession(relu, threads=np.int64(1)).run(None, {"x": X})


class Hostile(Mapping[str, Any]):
    """Whatever is asked of it raises."""

    def __fspath__(self) -> str:
        raise RuntimeError("thrown on purpose")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("thrown on purpose")

    def __len__(self) -> int:
        raise RuntimeError("thrown on purpose")

    def __getitem__(self, name: str) -> Any:
        raise RuntimeError("thrown on purpose")


class NoNumber:
    def __index__(self) -> int:
        raise RuntimeError("thrown on purpose")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("thrown on purpose")


@pytest.mark.parametrize("name", SESSION)
def test_what_an_argument_raises_itself_is_no_mistake_of_ours(name: str) -> None:
    relu = proto("Relu")
    compiled = od.compile(relu)
    for odd in (Hostile(), NoNumber(), [Hostile()], [NoNumber()], {"x": NoNumber()}):
        refused_or_taken(partial(SESSION[name], relu, compiled, odd))


def test_the_argument_that_raises_is_named() -> None:
    with pytest.raises(od.InputError, match=r"Hostile whose \w+ raises RuntimeError") as caught:
        od.load(Hostile())
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(od.InputError, match=r"NoNumber whose __array__ raises RuntimeError"):
        od.backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [NoNumber()])
    with pytest.raises(od.InputError, match=r"Hostile whose \w+ raises RuntimeError"):
        od.xrt.xclbin(Hostile())


def test_threads_have_an_upper_bound() -> None:
    opened = od.xrt.device(0)
    for threads in (0, 1, MOST_THREADS):
        opened.set_threads(threads)
    for threads in (MOST_THREADS + 1, (1 << 32) - 1, 1 << 40, -1):
        with pytest.raises((od.DeviceError, od.InputError), match="set_threads"):
            opened.set_threads(threads)


def entries() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions of ``onedispatch.transactions``, and the classes' own ones that need no object."""
    for name in od.transactions.__all__:
        entry = getattr(od.transactions, name)
        if isinstance(entry, type) and not issubclass(entry, BaseException):
            for method in ("from_bytes", "from_text"):
                if method in vars(entry):
                    yield f"{name}.{method}", getattr(entry, method)
        elif inspect.isfunction(entry):
            yield name, entry
    builder = od.transactions.TransactionBuilder(4, 1)
    read = od.transactions.Transaction.from_bytes(builder.to_bytes())
    for thing in (builder, read):
        for name, method in inspect.getmembers(thing, inspect.ismethod):
            if not name.startswith("_"):
                yield f"{type(thing).__name__}.{name}", method


ENTRIES = dict(entries())


@pytest.mark.parametrize("name", ENTRIES)
def test_odd_arguments_of_transactions(name: str) -> None:
    entry = ENTRIES[name]
    form = inspect.signature(entry)
    needed = [p for p in form.parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    for odd in ODD:
        refused_or_taken(partial(entry, *[odd] * len(needed)))
        refused_or_taken(partial(entry, [odd]))
    refused_or_taken(partial(entry, *range(20)))


# -- the border itself ------------------------------------------------------------------------


def test_misfits_are_told_by_the_annotations() -> None:
    @public
    def scaled(data: bytes, *factors: int, limit: int | None = None) -> int:
        return len(data) // limit * sum(factors) if limit is not None else 0

    assert scaled(b"abcd", 1, np.int32(2), limit=2) == 6
    with pytest.raises(od.InputError, match="data=5; accepted: data: bytes"):
        scaled(5, limit=1)
    with pytest.raises(od.InputError, match="factors='a'"):
        scaled(b"", "a", limit=1)
    with pytest.raises(od.InputError, match="missing a required argument: 'data'"):
        scaled()
    with pytest.raises(od.InternalError, match="ZeroDivisionError"):
        scaled(b"", limit=0)


def test_guarded_classes_keep_what_is_not_public() -> None:
    @guarded
    class Box:
        def __init__(self, size: int) -> None:
            self.size = size + 0

        @classmethod
        def unit(cls) -> Box:
            return cls(1)

        def _inside(self) -> None:
            raise KeyError("mine")

        def outside(self) -> None:
            self._inside()

    with pytest.raises(od.InputError, match="size=None"):
        Box(None)
    with pytest.raises(KeyError):
        Box.unit()._inside()
    with pytest.raises(od.InternalError, match="KeyError"):
        Box(2).outside()
