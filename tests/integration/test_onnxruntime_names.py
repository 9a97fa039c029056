# SPDX-License-Identifier: Apache-2.0
"""Names of onnxruntime: the same calls give the same, and what means nothing here says so once."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import onedispatch as od
from onedispatch.dispatch.ort import module, options, values, without_meaning
from onedispatch.dispatch.runtime import iobinding, ort_methods

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

TEXT = """<ir_version: 8, opset_import: ["": 21], producer_name: "me", model_version: 7, domain: "d",
    doc_string: "what it is", metadata_props: ["names": "cat,dog", "k": "v"]>
    g (float[N, 4] x, int64 k) => (float[N, 4] y, int64 z) <float[4] w = {1, 2, 3, 4}>
    { y = Mul(x, w) z = Add(k, k) }"""
HEAD = '<ir_version: 8, opset_import: ["": 21]>'
X = np.random.default_rng(5).standard_normal((3, 4), np.float32)
K = np.array(3)
ENGINES = {"onnxruntime": onnxruntime, "onedispatch": od}
Engine = Any  # a module: onnxruntime, or ours under its name
# Of a run that fails: onnxruntime's kinds of errors.
FAILURES = (
    ValueError,
    TypeError,
    RuntimeError,
    od.InputError,
    onnxruntime.capi.onnxruntime_pybind11_state.Fail,
)
FAILURES += (onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument,)


def model() -> bytes:
    return bytes(parser.parse_model(TEXT).SerializeToString())


@pytest.fixture(params=ENGINES)
def ort(request: pytest.FixtureRequest) -> Engine:
    return ENGINES[request.param]


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test sees warnings of what means nothing; most ignore them."""
    monkeypatch.setattr(without_meaning, "_named", set())
    monkeypatch.setattr(without_meaning, "_severity", od.LoggingLevel.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", od.IgnoredOptionWarning)
        yield


def session(ort: Engine = od, *given: Any, **named: Any) -> Any:
    return ort.InferenceSession(model(), *given, **named)


# -- every name is there, or refused ----------------------------------------------------------------

REFUSED = {
    "InferenceSession": ort_methods.REFUSED,
    "SessionOptions": options.REFUSED_OF_SESSIONS,
    "RunOptions": options.REFUSED_OF_RUNS,
    "OrtValue": values.REFUSED,
    "IOBinding": iobinding.REFUSED,
    "ModelMetadata": {},
    "NodeArg": {},
}
# Of the file onnxruntime/__init__.py itself.
INNER = {
    "contextlib",
    "cuda_version",
    "import_capi_exception",
    "onnxruntime_validation",
    "package_name",
    "version",
}


@pytest.mark.parametrize("name", REFUSED)
def test_every_attribute_is_there_or_refused(name: str) -> None:
    theirs, ours = getattr(onnxruntime, name), getattr(od, name)
    made = ours() if name in ("SessionOptions", "RunOptions", "ModelMetadata") else ours
    public = {one for one in dir(theirs) if not one.startswith("_")}
    there = {one for one in dir(made) if not one.startswith("_")} | set(getattr(ours, "__annotations__", {}))
    assert public <= there
    assert set(REFUSED[name]) <= public, "refused, and onnxruntime has no such name"
    for one in REFUSED[name]:
        with pytest.raises(od.InputError, match=rf"^{name}\.{one}: given a call"):
            getattr(made, one)(None)


def test_every_name_of_the_module_is_there_or_refused() -> None:
    names = {one for one in dir(onnxruntime) if not one.startswith("_")} - INNER
    inner = {one for one in names if isinstance(getattr(onnxruntime, one), ModuleType)}
    public = names - inner | {"capi"}  # the others are there once something imports them
    here = {one for one in public if hasattr(od, one)}
    assert public - here <= module.REFUSED.keys()
    assert not here & module.REFUSED.keys()
    for name, remedy in module.REFUSED.items():
        with pytest.raises(AttributeError, match=f"no attribute '{name}' of onnxruntime") as caught:
            getattr(od, name)
        assert remedy in str(caught.value)


ENUMS = "ExecutionMode ExecutionOrder GraphOptimizationLevel".split()
ENUMS += "OrtAllocatorType OrtDeviceMemoryType OrtMemType".split()


@pytest.mark.parametrize("name", ENUMS)
def test_enums_have_the_same_members(name: str) -> None:
    theirs = {key: int(value) for key, value in getattr(onnxruntime, name).__members__.items()}
    assert {key: int(value) for key, value in getattr(od, name).__members__.items()} == theirs


@pytest.mark.parametrize("name", ["SessionOptions", "RunOptions"])
def test_options_have_the_same_defaults(name: str) -> None:
    theirs, ours = getattr(onnxruntime, name)(), getattr(od, name)()
    settings = {one: getattr(theirs, one) for one in type(ours)._table if one != "profile_file_prefix"}
    assert settings
    for one, value in settings.items():
        own = getattr(ours, one)
        assert own == (value if isinstance(value, str) else int(value)), one


def test_functions_of_the_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert od.get_available_providers() == ["OneDispatchExecutionProvider", "CPUExecutionProvider"]
    assert od.get_all_providers() == od.get_available_providers()
    assert od.get_device() == "NPU" and od.get_ep_devices() == [] and not od.has_collective_ops()
    assert od.get_version_string() == od.__version__ and od.__version__ in od.get_build_info()
    od.disable_telemetry_events()
    od.enable_telemetry_events()
    od.preload_dlls()
    od.print_debug_info()
    assert "npu2" in capsys.readouterr().out
    od.set_seed(5)
    with pytest.raises(od.InputError, match="set_seed"):
        od.set_seed("5")  # type: ignore[arg-type]


# -- sessions ---------------------------------------------------------------------------------------


def test_a_script(ort: Engine) -> None:
    """What is said of a model, and all ways of running it."""
    opts = ort.SessionOptions()
    opts.intra_op_num_threads, opts.log_severity_level = 1, 3
    opts.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    opts.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    made = ort.InferenceSession(model(), sess_options=opts, providers=["CPUExecutionProvider"])
    assert [(i.name, i.type, i.shape) for i in made.get_inputs()] == [
        ("x", "tensor(float)", ["N", 4]),
        ("k", "tensor(int64)", []),
    ]
    assert [(o.name, o.type, o.shape) for o in made.get_outputs()][1] == ("z", "tensor(int64)", [])
    assert made.get_overridable_initializers() == []
    assert made.get_session_options().intra_op_num_threads == 1
    assert "CPUExecutionProvider" in made.get_providers()
    assert set(made.get_provider_options()) == set(made.get_providers())
    made.set_providers(["CPUExecutionProvider"])
    made.disable_fallback()
    made.enable_fallback()
    assert made.end_profiling() == "" and made.get_profiling_start_time_ns() == 0
    expected = X * np.float32([1, 2, 3, 4])
    for names in (None, [], ["y", "z"]):
        y, z = made.run(names, {"x": X, "k": K})
        np.testing.assert_array_equal(y, expected)
        assert z == 6 and z.shape == () and z.dtype == np.int64
    (y,) = made.run(["y"], {"x": ort.OrtValue.ortvalue_from_numpy(X), "k": K}, ort.RunOptions())
    np.testing.assert_array_equal(y, expected)
    found = made.run_with_ort_values(
        ["z", "y"], {"x": ort.OrtValue.ortvalue_from_numpy(X), "k": ort.OrtValue.ortvalue_from_numpy(K)}
    )
    assert [one.data_type() for one in found] == ["tensor(int64)", "tensor(float)"]
    np.testing.assert_array_equal(found[1].numpy(), expected)


def test_bound_values(ort: Engine) -> None:
    made = session(ort)
    binding, out = made.io_binding(), ort.OrtValue.ortvalue_from_shape_and_type([3, 4], np.float32)
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(X))
    binding.bind_cpu_input("k", K)
    binding.bind_ortvalue_output("y", out)
    binding.bind_output("z")
    made.run_with_iobinding(binding, ort.RunOptions())
    np.testing.assert_array_equal(out.numpy(), X * np.float32([1, 2, 3, 4]))
    assert [one.data_type() for one in binding.get_outputs()] == ["tensor(float)", "tensor(int64)"]
    assert binding.get_outputs()[0].data_ptr() == out.data_ptr()


def test_what_a_model_says_of_itself(ort: Engine, tmp_path: Path) -> None:
    said = session(ort).get_modelmeta()
    assert said.custom_metadata_map == {"names": "cat,dog", "k": "v"}
    assert (said.producer_name, said.domain, said.version) == ("me", "d", 7)
    assert (said.description, said.graph_name, said.graph_description) == ("what it is", "g", "")
    plain = parser.parse_model(f"{HEAD} g (float[2] x) => (float[2] y) {{ y = Neg(x) }}")
    of_none = ort.InferenceSession(plain.SerializeToString()).get_modelmeta()
    assert (of_none.version, of_none.custom_metadata_map, of_none.description) == ((1 << 63) - 1, {}, "")


def test_a_compiled_model_keeps_what_its_file_said(tmp_path: Path) -> None:
    od.compile(model()).save(tmp_path / "m.od")
    again = od.InferenceSession(tmp_path / "m.od")
    assert again.get_modelmeta() == session().get_modelmeta()
    assert again.get_modelmeta().custom_metadata_map["names"] == "cat,dog"


LISTS: dict[str, Any] = {
    "float": ("float", [[1.5, 2], [3, 4]]),
    "whole numbers": ("float", [[1, 2], [3, 4]]),
    "truth": ("float", [True, False]),
    "bytes": ("uint8", [0, 255]),
    "floats as integers": ("int32", [1.75, -2.5]),
    "bool": ("bool", [0, 2]),
    "text": ("string", ["a", "b"]),
    "numbers as text": ("string", [1, 2.5]),
}


@pytest.mark.parametrize("case", LISTS)
def test_lists_are_inputs(case: str) -> None:
    kind, given = LISTS[case]
    shape = ", ".join(str(d) for d in np.array(given, object).shape)
    ends = f"g ({kind}[{shape}] x) => ({kind}[{shape}] y)"
    proto = parser.parse_model(f"{HEAD} {ends} {{ y = Identity(x) }}").SerializeToString()
    (theirs,) = onnxruntime.InferenceSession(proto).run(None, {"x": given})
    (ours,) = od.InferenceSession(proto).run(None, {"x": given})
    np.testing.assert_array_equal(ours, theirs)
    assert ours.dtype == theirs.dtype


FAILING: dict[str, Callable[[Engine, Any], Any]] = {
    "an input is missing": lambda ort, s: s.run(None, {"x": X}),
    "an input is unknown": lambda ort, s: s.run(None, {"x": X, "k": K, "q": K}),
    "an output is unknown": lambda ort, s: s.run(["nope"], {"x": X, "k": K}),
    "another dtype": lambda ort, s: s.run(None, {"x": X.astype(np.float64), "k": K}),
    "another shape": lambda ort, s: s.run(None, {"x": X[:, :3], "k": K}),
    "a ragged list": lambda ort, s: s.run(None, {"x": [[1.0], [1.0, 2.0]], "k": K}),
    "a number": lambda ort, s: s.run(None, {"x": X, "k": 3}),
    "a tuple": lambda ort, s: s.run(None, {"x": tuple(X.tolist()), "k": K}),
    "no run options": lambda ort, s: s.run(None, {"x": X, "k": K}, 5),
    "no session options": lambda ort, s: ort.InferenceSession(model(), sess_options=5),
    "no model": lambda ort, s: ort.InferenceSession(5),
    "unknown key": lambda ort, s: ort.SessionOptions().get_session_config_entry("q"),
    "unknown key of a run": lambda ort, s: ort.RunOptions().get_run_config_entry("q"),
    "empty key": lambda ort, s: ort.SessionOptions().add_session_config_entry("", "1"),
    "an entry that is no text": lambda ort, s: ort.SessionOptions().add_session_config_entry("q", 1),
    "threads as text": lambda ort, s: setattr(ort.SessionOptions(), "intra_op_num_threads", "4"),
    "a value of a list": lambda ort, s: ort.OrtValue.ortvalue_from_numpy([1.0]),
    "a value elsewhere": lambda ort, s: ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0),
    "a larger value": lambda ort, s: ort.OrtValue.ortvalue_from_numpy(X).update_inplace(X[:1]),
}


@pytest.mark.parametrize("case", FAILING)
def test_mistakes_are_errors_on_both(case: str, ort: Engine) -> None:
    with pytest.raises((*FAILURES, od.ModelError)):
        FAILING[case](ort, session(ort))


def test_unknown_attributes_of_options_are_errors(ort: Engine) -> None:
    for made in (ort.SessionOptions(), ort.RunOptions()):
        with pytest.raises(AttributeError, match="nonsense"):
            made.nonsense = 1


def test_a_run_ends_where_its_options_say_so(ort: Engine) -> None:
    made, run = session(ort), ort.RunOptions()
    run.terminate = True
    with pytest.raises(FAILURES, match="terminate"):
        made.run(None, {"x": X, "k": K}, run)
    run.terminate = False
    assert made.run(["z"], {"x": X, "k": K}, run) == [6]


def test_a_run_ends_before_its_next_step() -> None:
    """The option is looked at before every step: one that is set meanwhile ends the run."""

    class Later(od.RunOptions):
        asked = 0

        def __getattribute__(self, name: str) -> Any:
            if name == "terminate":
                type(self).asked += 1
                return type(self).asked > 1
            return super().__getattribute__(name)

    text = """<ir_version: 8, opset_import: ["": 21]> g (float[4] x) => (float[4] y)
        { a = Relu(x) b = Cast <to = 11> (a) c = Cast <to = 1> (b) y = Neg(c) }"""
    made = od.InferenceSession(parser.parse_model(text))
    assert sum(step is not None for step in made.model.used_last()[1].steps) > 1
    with pytest.raises(od.InputError, match="terminate"):
        made.run(None, {"x": X[0]}, Later())
    np.testing.assert_array_equal(made.run(None, {"x": X[0]})[0], -np.maximum(X[0], 0))


def test_runs_beside_the_caller(ort: Engine) -> None:
    made, done, answers = session(ort), threading.Event(), []

    def callback(results: Any, user_data: Any, error: str) -> None:
        answers.append((results, user_data, error))
        done.set()

    for feed in ({"x": X, "k": K}, {"x": X.astype(np.float64), "k": K}):
        done.clear()
        made.run_async(["z"], feed, callback, "mine")
        assert done.wait(60)
    assert answers[0] == ([6], "mine", "")
    assert list(answers[1][0]) == [] and answers[1][1] == "mine" and answers[1][2]


def test_arguments_in_the_order_of_either_package() -> None:
    opts = od.SessionOptions()
    opts.intra_op_num_threads = 3
    own = [("OneDispatchExecutionProvider", {"device": "npu1", "precision": "bf16"}), "CPUExecutionProvider"]
    made = session(od, opts, own)
    assert (made.device, made.model.precision, made.get_session_options()) == ("npu1", "bf16", opts)
    assert made.get_provider_options()["OneDispatchExecutionProvider"]["precision"] == "bf16"
    made = session(od, None, ["OneDispatchExecutionProvider"], [{"device": "npu1"}])
    assert made.device == "npu1"
    made = od.InferenceSession(path_or_bytes=model(), providers=None, enable_fallback=1)
    assert made.device == "npu2" and made.get_session_options().intra_op_num_threads == 0
    made = session(od, "npu1", "bf16", "cpu", 2)
    assert (made.device, made.model.precision, made.get_session_options().intra_op_num_threads) == (
        "npu1",
        "bf16",
        2,
    )


def test_options_of_ours_come_from_three_places() -> None:
    """Arguments count before options of the provider, these before entries of the configuration."""
    opts = od.SessionOptions()
    for name, text in {"device": "npu1", "precision": "bf16", "fallback": "error", "cache_size": "3"}.items():
        opts.add_session_config_entry(f"onedispatch.{name}", text)
    own = {"OneDispatchExecutionProvider": {"device": "npu1_2col", "precision": "fp32"}}
    made = session(od, sess_options=opts, providers=list(own.items()), device="npu2_1col")
    got = (made.device, made.model.precision, made.model.fallback, made.model.cache_size)
    assert got == ("npu2_1col", "fp32", "error", 3)
    assert made.get_providers() == ["OneDispatchExecutionProvider"]
    opts = od.SessionOptions()
    opts.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    opts.add_provider("OneDispatchExecutionProvider", {"device": "npu1"})
    assert opts.has_providers() and session(od, opts).model.fallback == "error"
    assert session(od, opts).device == "npu1"


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "number": ({"providers": 5}, "providers: given 5"),
    "list of numbers": ({"providers": [5]}, "names of providers"),
    "lengths": (
        {"providers": ["CPUExecutionProvider"], "provider_options": [{}, {}]},
        "a dict for each provider",
    ),
    "unknown": ({"providers": [("OneDispatchExecutionProvider", {"devise": "x"})]}, "Did you mean 'device'"),
    "no number": ({"providers": [("OneDispatchExecutionProvider", {"threads": "two"})]}, "threads.*a number"),
    "twice": ({"path_or_bytes": b"x"}, "path_or_bytes twice"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_arguments_are_explained(case: str) -> None:
    given, text = MALFORMED[case]
    with pytest.raises(od.InputError, match=text):
        session(od, **given)


def test_providers_are_for_a_new_session() -> None:
    made = session()
    made.set_providers(["CUDAExecutionProvider", ("OneDispatchExecutionProvider", {"device": "npu2"})])
    with pytest.raises(od.InputError, match=r"set_providers.*device = 'npu1'.*new session"):
        made.set_providers([("OneDispatchExecutionProvider", {"device": "npu1"})])


def test_sizes_of_named_dimensions(ort: Engine) -> None:
    opts = ort.SessionOptions()
    opts.add_free_dimension_override_by_name("N", 3)
    opts.add_free_dimension_override_by_name("unknown", 9)
    made = session(ort, opts)
    assert made.get_inputs()[0].shape == [3, 4] and made.get_outputs()[0].shape == [3, 4]
    np.testing.assert_array_equal(made.run(["y"], {"x": X, "k": K})[0], X * np.float32([1, 2, 3, 4]))
    if ort is od:
        assert len(made.model.executables) == 1  # compiled at once, and used


# -- what means nothing ----------------------------------------------------------------------------


def warned(ask: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ask()
    assert all(Path(one.filename) == Path(__file__) for one in caught), "the caller is named"
    assert all(one.category is od.IgnoredOptionWarning for one in caught)
    return [str(one.message) for one in caught]


def odd_options(**settings: Any) -> od.SessionOptions:
    made = od.SessionOptions()
    for name, value in settings.items():
        setattr(made, name, value)
    return made


MEANINGLESS: dict[str, Any] = {
    "graph_optimization_level": od.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "execution_mode": od.ExecutionMode.ORT_PARALLEL,
    "execution_order": od.ExecutionOrder.PRIORITY_BASED,
    "inter_op_num_threads": 4,
    "enable_cpu_mem_arena": False,
    "enable_mem_pattern": False,
    "enable_mem_reuse": False,
    "use_per_session_threads": False,
    "log_verbosity_level": 3,
}


@pytest.mark.parametrize("name", MEANINGLESS)
def test_options_without_meaning_are_named_once(name: str) -> None:
    opts = odd_options(**{name: MEANINGLESS[name]})
    (text,) = warned(lambda: session(od, opts))
    assert f"SessionOptions.{name} = " in text and "means nothing here" in text
    assert warned(lambda: session(od, opts)) == []


def test_providers_of_others_are_named_once() -> None:
    (text,) = warned(lambda: session(od, providers=["CUDAExecutionProvider", "CPUExecutionProvider"]))
    assert "CUDAExecutionProvider" in text and "simulated NPU" in text
    assert warned(lambda: session(od, providers=["CPUExecutionProvider"])) == []


def test_entries_and_runs_are_named_once() -> None:
    opts, run = od.SessionOptions(), od.RunOptions()
    opts.add_session_config_entry("session.intra_op.allow_spinning", "0")
    run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    run.only_execute_path_to_fetches = True
    assert ["allow_spinning" in text for text in warned(lambda: session(od, opts))] == [True]
    assert opts.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    made = session()
    assert len(warned(lambda: made.run(None, {"x": X, "k": K}, run))) == 2
    assert warned(lambda: made.run(None, {"x": X, "k": K}, run)) == []
    assert len(warned(lambda: opts.add_free_dimension_override_by_denotation("BATCH", 1))) == 1
    assert len(warned(lambda: od.set_global_thread_pool_sizes(1, 1))) == 1
    assert len(warned(lambda: od.set_default_logger_verbosity(1))) == 1


def test_what_says_nothing_of_use_is_quiet() -> None:
    """Defaults, names of ours, and options that warn of errors alone."""
    ours = ["OneDispatchExecutionProvider", "CPUExecutionProvider"]
    assert warned(lambda: session(od, od.SessionOptions(), providers=ours)) == []
    quiet = odd_options(log_severity_level=3, enable_cpu_mem_arena=False)
    assert warned(lambda: session(od, quiet, providers=["CPUExecutionProvider"])) == []


def test_a_process_may_be_quiet() -> None:
    od.set_default_logger_severity(3)
    assert warned(lambda: session(od, providers=["CPUExecutionProvider"])) == []
    od.set_default_logger_severity(2)
    assert len(warned(lambda: session(od, providers=["CPUExecutionProvider"]))) == 1
    with pytest.raises(od.InputError, match="set_default_logger_severity"):
        od.set_default_logger_severity(7)


def test_an_optimised_model_is_not_written() -> None:
    with pytest.raises(od.InputError, match=r"optimized_model_filepath.*CompiledModel|onedispatch.compile"):
        odd_options(optimized_model_filepath="a.onnx")
    assert odd_options(optimized_model_filepath="").optimized_model_filepath == ""


# -- profiles --------------------------------------------------------------------------------------


def test_a_profile_has_runs_and_nodes(ort: Engine, tmp_path: Path) -> None:
    opts = ort.SessionOptions()
    opts.enable_profiling, opts.profile_file_prefix = True, str(tmp_path / "profile")
    made = session(ort, opts)
    assert made.get_profiling_start_time_ns() > 0
    for _ in range(2):
        made.run(None, {"x": X, "k": K})
    file = made.end_profiling()
    assert (
        file.startswith(str(tmp_path / "profile")) and file.endswith(".json") and made.end_profiling() == ""
    )
    events = json.loads(Path(file).read_text())
    runs = [event for event in events if event["cat"] == "Session" and event["name"] == "model_run"]
    nodes = [event for event in events if event["cat"] == "Node"]
    assert len(runs) == 2 and len(nodes) >= 4
    assert all(event["dur"] > 0 and event["args"]["op_name"] for event in nodes if ort is od)


def test_a_profile_is_of_the_modelled_clock(tmp_path: Path) -> None:
    opts = odd_options(enable_profiling=True, profile_file_prefix=str(tmp_path / "profile"))
    made = session(od, opts)
    seconds = []
    for _ in range(2):
        made.run(None, {"x": X, "k": K})
        seconds.append(made.last_run.seconds)
    events = json.loads(Path(made.end_profiling()).read_text())
    runs = [event for event in events if event["cat"] == "Session"]
    assert [event["dur"] for event in runs] == pytest.approx([one * 1e6 for one in seconds])
    assert runs[1]["ts"] == pytest.approx(seconds[0] * 1e6)
    calls = [event for event in events if event["cat"] == "Core" and event["ph"] == "X"]
    assert len(calls) == 2 * len(made.last_run.trace.calls) > 0
    assert max(call["ts"] + call["dur"] for call in calls) <= sum(seconds) * 1e6 + 1e-6
    opts.profile_file_prefix = str(tmp_path / "no" / "folder")
    with pytest.raises(od.InputError, match="profile_file_prefix"):
        session(od, opts).end_profiling()


def test_onnx_files_and_names_of_the_package_go_together(tmp_path: Path) -> None:
    onnx.save(parser.parse_model(TEXT), str(tmp_path / "m.onnx"))
    made = od.InferenceSession(str(tmp_path / "m.onnx"), od.SessionOptions(), ["CPUExecutionProvider"])
    assert made.run(["z"], {"x": X, "k": K}) == [6] and made.placement and made.last_run is not None
