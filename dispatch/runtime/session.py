# SPDX-License-Identifier: Apache-2.0
"""``InferenceSession``: ONNX Runtime's way of running a model, on the simulated NPU."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from onedispatch.dispatch.artifact.loading import opened
from onedispatch.dispatch.artifact.model import CACHE_SIZE, CompiledModel
from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.base.arguments import refuse_unknown
from onedispatch.dispatch.base.forks import ForkLock
from onedispatch.dispatch.base.host_work import HostWork
from onedispatch.dispatch.compiler.executable import Executable, HostStep, NodePlacement
from onedispatch.dispatch.driver.executable_cache import ExecutableCache, prepared
from onedispatch.dispatch.driver.requested import RequestedOptions
from onedispatch.dispatch.frontend.graph import Array, Dimension, Value
from onedispatch.dispatch.ort.options import SessionOptions, begin_run, check_going_on
from onedispatch.dispatch.ort.providers import ProviderOptions, Providers, translated
from onedispatch.dispatch.ort.without_meaning import refusing
from onedispatch.dispatch.plugins import discovery
from onedispatch.dispatch.runtime.feeds import Inputs, checked_feed
from onedispatch.dispatch.runtime.iobinding import IOBinding, Targets
from onedispatch.dispatch.runtime.options import ExecutionOptions, SessionChoices
from onedispatch.dispatch.runtime.ort_methods import REFUSED, OrtMethods
from onedispatch.dispatch.runtime.prints import Print, PrintObserver
from onedispatch.dispatch.runtime.profile import Profile
from onedispatch.dispatch.runtime.profiling import Profiling
from onedispatch.dispatch.runtime.report import RunReport, summed
from onedispatch.dispatch.runtime.runners import Runners
from onedispatch.dispatch.runtime.summary import Summary, summary_of
from onedispatch.transactions import Device
from onedispatch.transactions.base import host
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import DeviceError, InputError
from onedispatch.transactions.machine.device import DeviceName

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from onedispatch.dispatch.building.graph import Graph
    from onedispatch.dispatch.check.child import CheckReport
    from onedispatch.dispatch.check.observer import AccessCheck
    from onedispatch.dispatch.frontend.importer import ModelLike
    from onedispatch.dispatch.host.regions import HostRegion
    from onedispatch.dispatch.runtime.runners import Runner
    from onedispatch.operators.plugin.check import Options
    from onedispatch.operators.plugin.findings import Finding

_NO_TARGETS = Targets()
_REQUESTED = tuple(field.name for field in fields(RequestedOptions))
_EXECUTION = tuple(field.name for field in fields(ExecutionOptions))
_CHOICES = frozenset((*_REQUESTED, *_EXECUTION, "cache_size"))  # by name, options of a provider too


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model: name, shape (symbols as strings), ORT type string."""

    name: str
    type: str
    shape: list[Dimension]

    @classmethod
    def of(cls, value: Value, sizes: Mapping[str, int] | None = None) -> NodeArg:
        """``sizes``: of named dimensions, as far as they were said."""
        known = sizes or {}
        shape = [known.get(d, d) if isinstance(d, str) else d for d in value.shape or ()]
        return cls(value.name, value.type, shape)


@dataclass
class _Ended:
    """A run that has ended: its report is made when it is asked for, since few ask."""

    steps: Sequence[Callable[[], RunReport]]
    work: tuple[HostWork, ...]
    seconds: float
    profile: Callable[[], Profile | None]

    @cached_property
    def report(self) -> RunReport:
        report = summed([made() for made in self.steps], self.work, self.seconds)
        if not report.dispatches or report.profiled is not None:
            return report  # a traced run has found it already
        return replace(report, profiled=self.profile)


@cache
def _core() -> Any:
    """The simulator, which sessions need once they run."""
    from onedispatch.dispatch.base.native import core

    return core


def _profile(executable: Executable, target: Device) -> Profile | None:
    from onedispatch.dispatch.runtime.clock import report_of

    return report_of(executable, target).profile


@refusing(REFUSED)
class InferenceSession(OrtMethods):
    """Runs a model on a simulated NPU.

    Args:
        model: the path or the bytes of an ONNX model, of a frozen GraphDef, or of a file of
            ``CompiledModel.save``; an onnx.ModelProto, an ``od.Graph``, a GraphDef, or a CompiledModel.
        device: a name of ``onedispatch.devices()``, "npu2" by default.
        precision: ``"fp32"``, the default, computes what the model says, ``"bf16"`` its float32 tensors in
            bfloat16: see ``compile``.
        fallback: ``"cpu"``, the default, runs nodes that do not map on the host, ``"error"`` refuses them.
        threads: host threads for the simulation and for host regions; None lets each choose.
        shapes: concrete shapes for inputs with symbolic dimensions, to compile at once.
        cache_size: executables kept for models whose shapes vary.
        plugins: kernel libraries, Python files or folders of these: see ``onedispatch.plugins``.
        kernel_seconds: what one call of a custom kernel may take of the host's time before the run ends
            with ``KernelTimeoutError``; None: ``ONEDISPATCH_KERNEL_SECONDS`` of the environment, or 60. A
            Python call that never returns to the interpreter (``lock.acquire()``, ``time.sleep``) cannot be
            ended in this process; ``check="access"`` and ``onedispatch kernel check`` run kernels in a child
            process, which is killed.
        check: ``"access"`` runs every node of a custom kernel member by member first, in a child
            process, on the inputs that it has in the run: slow, for authors of kernels. See ``findings``.
            The model is compiled and run in a child first, so that a kernel that crashes, or ends its
            process, is an error there and not the end of this process.
        check_seconds: what a check may take in all.
        frontend, outputs, fusions, freeze: how the model is read: see ``compile``.
        cache: where compiled models are kept: see ``compile``.
        selector, catalog, pins: who chooses solutions: see ``compile``. A compiled model has its own.
        cast_policy: ``"f32"`` has custom kernels compute in f32 what they have no element type for.
        sums: ``"narrow"`` has products keep sums in the type of their results between steps: see ``compile``.
        groups: ``"on"``, the default, keeps tensors in memory tiles between operators where that costs less.
            A compiled model was made with its own device, precision, fallback, cast_policy, sums and groups:
            others are refused.
        print: where lines that kernels print go, beside ``last_run.prints`` and the logger
            ``onedispatch.print``: ``"report"`` nowhere, ``"stdout"`` there, too; None: kernels print into
            nothing, which takes no modelled time.
        print_bytes: of the ring that keeps what an operation prints on a core; 32 KiB. None says the same.
        record: True, the default, repeats what the simulator's engine did in an earlier run wherever nothing
            that decides it has changed: much faster, with the same modelled time and the same results to the
            bit, but for which NaN comes of several.
            ``"verify"`` makes such runs both ways and compares every word; False leaves all to the engine.
            None: ``ONEDISPATCH_RECORD`` of the environment ("on", "off", "verify"), else True. What a run did
            is in ``last_run.recorded``.
        trace: True, or how many kernel calls, and spans of DMA channels, device memory and the controller,
            are kept one by one: ``last_run.trace`` has them, ``write_trace`` writes them as a timeline.
        sess_options, providers, provider_options: onnxruntime's arguments, by name or in its order behind the
            model: see ``SessionOptions``, and dispatch/ort/README.md for what they mean here.

    Raises:
        ModelError, UnsupportedModelError, DeviceError, InputError: see ``compile``.
        KernelLibraryError: a plug-in does not load, or no plug-in has a kernel of the CompiledModel.

    One session may be used from several threads (runs follow one another); several sessions
    run side by side.
    """

    @public
    def __init__(
        self,
        model: ModelLike | CompiledModel | Graph | None = None,
        device: DeviceName | SessionOptions | None = None,
        precision: str | Providers | None = None,
        fallback: str | ProviderOptions | None = None,
        threads: int | None = None,
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        plugins: Sequence[str | os.PathLike[str]] | None = None,
        **options: Unpack[SessionChoices],
    ) -> None:
        refuse_unknown("InferenceSession", options, SessionChoices)
        asked = {"device": device, "precision": precision, "fallback": fallback, "threads": threads}
        model, rest, self._ort_options = ort = translated(model, {**asked, **options}, _CHOICES)
        requested = RequestedOptions(**{name: rest.pop(name, None) for name in _REQUESTED})
        cache_size = rest.pop("cache_size", CACHE_SIZE)
        self._options = ExecutionOptions.checked(**rest)
        self._threads, self._dimensions = self._options.threads, ort.dimensions
        self._check: AccessCheck | None = None
        self._prints = PrintObserver(self._options.print, self._options.print_bytes)
        discovery.use(plugins)
        compiled = self._compiled(model, requested, shapes, cache_size)
        self._executables = ExecutableCache(prepared(compiled, self._known_shapes(compiled)))
        self._lock = ForkLock()
        self._runners = Runners(self.model.target, self._options, self.model.cache_size)
        self._last_run: _Ended | None = None
        self._running = False
        self._inputs = Inputs(self.model.inputs)
        self._outputs = {v.name: index for index, v in enumerate(self.model.outputs)}
        profiled = self._ort_options is not None and self._ort_options.enable_profiling
        self._profiling = Profiling(self.get_session_options().profile_file_prefix) if profiled else None

    def _known_shapes(self, model: CompiledModel) -> Mapping[str, Sequence[int]] | None:
        """Shapes of all inputs, where sizes of named dimensions that options say make them known."""
        if not self._dimensions:
            return None
        shapes = {value.name: NodeArg.of(value, self._dimensions).shape for value in model.inputs}
        known = all(isinstance(size, int) for shape in shapes.values() for size in shape)
        return {name: [int(size or 0) for size in shape] for name, shape in shapes.items()} if known else None

    def _compiled(
        self,
        model: ModelLike | CompiledModel | Graph,
        options: RequestedOptions,
        shapes: Mapping[str, Sequence[int]] | None,
        cache_size: int,
    ) -> CompiledModel:
        """The model, compiled; with check mode in a child first."""
        loaded = model if isinstance(model, CompiledModel) else opened(model)

        def compiled() -> CompiledModel:
            if loaded is None:
                from onedispatch.dispatch.driver.compile_model import compile_model

                return compile_model(model, shapes=shapes, cache_size=cache_size, **options.given)
            options.require(loaded)
            loaded.check_kernels("the compiled model")
            return prepared(loaded, shapes)

        with host.kernel_limit(self._options.kernel_seconds):
            if self._options.check is not None:
                self._check = self._access_check(loaded, model, options)
                self._check.before_compile(compiled)
            return compiled()

    def _access_check(
        self,
        loaded: CompiledModel | None,
        model: ModelLike | CompiledModel | Graph,
        requested: RequestedOptions,
    ) -> AccessCheck:
        from onedispatch.dispatch.check.observer import AccessCheck
        from onedispatch.dispatch.driver.compile_model import imported
        from onedispatch.operators.plugin.check import Options

        options = Options(seconds=self._options.kernel_seconds, limit=self._options.check_seconds)
        graph = loaded.source if loaded is not None else imported(model, how=requested.reading)
        return AccessCheck(graph, self._values, options)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the model and the options; the new session has run nothing yet."""
        if self._options.check is not None:
            given = f"a session with check={self._options.check!r}"
            remedy = "make it where it is used: it keeps the graph that it checks"
            raise InputError("pickle of an InferenceSession", given, "a session without check=", remedy)
        return partial(InferenceSession, **self._options.given), (self.model,)

    # -- what the model is -----------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        return [NodeArg.of(value, self._dimensions) for value in self.model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        return [NodeArg.of(value, self._dimensions) for value in self.model.outputs]

    @property
    def device(self) -> str:
        """The device's canonical name."""
        return self.model.device

    @property
    def model(self) -> CompiledModel:
        """The compiled model, with the executables that runs of this session made."""
        return self._executables.model

    @property
    @public
    def placement(self) -> list[NodePlacement]:
        """Where every node runs, for the shapes used last.

        Reasons of nodes on the host end with the engine that computes them, and why it is not
        onnxruntime where it is another one. Raises ``InputError`` until the first run where shapes are still
        open, or values of inputs decide them.
        """
        return self.placed(*self.model.used_last())

    @public
    def placed(self, key: str, executable: Executable) -> list[NodePlacement]:
        """Where the nodes of one of the model's executables run."""
        engines: dict[str, str] = {}
        if any(isinstance(step, HostStep) for step in executable.steps):
            with self._lock.guard:
                for runner in self._runners.of(key, executable, HostStep):
                    engines |= getattr(runner, "engines", {})
        return [
            replace(row, reason=f"{row.reason}; {engines[row.node]}", engine=engines[row.node])
            if row.node in engines
            else row
            for row in executable.placement
        ]

    @public
    def summary(self) -> Summary:
        """The verdict on the model, for the shapes used last: where its nodes run, how fast, what bounds it.

        It takes the time of ``CompiledModel.timing``, and needs no run. Raises ``InputError`` where
        ``placement`` does, and what ``timing`` raises.
        """
        key, executable = self.model.used_last()
        return summary_of(self.device, executable, self.placed(key, executable), self.model.timing())

    @property
    @public
    def last_run(self) -> RunReport | None:
        """The report of the latest run of this session."""
        return None if self._last_run is None else self._last_run.report

    @property
    def prints(self) -> list[Print]:
        """What kernels printed in the latest run, as far as it came where it failed."""
        return list(self._prints.lines)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What ``check="access"`` found in the latest run, warnings too."""
        return () if self._check is None else self._check.findings

    # -- running ---------------------------------------------------------------------------

    @public
    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: object = None,
    ) -> list[Any]:
        """Computes outputs, all of them (None) or those named, in that order.

        Inputs are arrays, ``OrtValue``s, or lists, which become arrays of the input's type.
        ``run_options``: None, or a ``RunOptions``.

        Raises:
            InputError: a wrong, missing or unknown name, or a dtype or shape that does not fit.
            TransactionError, SimulationError: the transaction cannot be run as it is.
            KernelAccessError: with ``check="access"``, kernels that touch what they do not declare.
            DeviceError: a kernel's Python body called it.
        """
        _core().require_no_kernel_runs("InferenceSession.run")
        start = time.perf_counter()
        asked = begin_run("InferenceSession.run", run_options)
        indices = self._outputs.values() if output_names is None else self._wanted(output_names)
        feed, shapes = checked_feed(self._inputs, input_feed)
        _, results = self._results(feed, shapes, start, asked=asked)
        return [results[index] for index in indices]

    @public
    def io_binding(self) -> IOBinding:
        """Binds arrays and memory to inputs and outputs, for ``run_with_iobinding``."""
        return IOBinding(self, self._inputs.declared, self.model.outputs)

    @public
    def run_with_iobinding(self, iobinding: IOBinding, run_options: object = None) -> None:
        """Computes the outputs that ``iobinding`` binds, from the inputs that it binds.

        Memory that is bound to outputs is written when the whole run has succeeded, or by the step that makes
        the output: after an error its contents are undefined.

        Raises ``InputError`` for a binding of another session, inputs that are not bound, no output that
        is, or memory of another shape than the result; else what ``run`` raises.
        """
        _core().require_no_kernel_runs("InferenceSession.run_with_iobinding")
        start = time.perf_counter()
        if not isinstance(iobinding, IOBinding):
            given = f"a {type(iobinding).__name__}"
            raise InputError("run_with_iobinding", given, "what io_binding() of this session returned")
        asked = begin_run("InferenceSession.run_with_iobinding", run_options)
        feed, shapes, targets = iobinding._begin(self)
        iobinding._finish(targets, *self._results(feed, shapes, start, targets, asked))

    def _results(
        self,
        feed: dict[str, Any],
        shapes: dict[str, tuple[int, ...]],
        start: float,
        targets: Targets = _NO_TARGETS,
        asked: Any = None,
    ) -> tuple[Executable, list[Any]]:
        """One run: the executable, and all outputs. Device steps write into ``targets`` where they can."""
        if self._check is not None:
            self._check.before_run(self.model, feed)
        with self._lock.guard:
            self._take_turn()
            key, executable, work = self._executables.executable(shapes, feed, self._options.kernel_seconds)
            direct = targets.direct(executable)
            runners = self._runners.all(key, executable)
            values: dict[str, Any] = {**feed, **executable.constants}
            self._prints.clear()
            reports = []
            for runner in runners:
                check_going_on("InferenceSession.run", asked)
                reports.append(self._step(runner, values, direct))
            profile = partial(_profile, executable, self._runners.target)
            self._last_run = _Ended(reports, work, time.perf_counter() - start, profile)
            self._running = False  # else the next run looks closer
            if self._profiling is not None:
                self._profiling.add(self._last_run.report)
            return executable, executable.results(values)

    def checked(self, input_feed: Mapping[str, Any], options: Options) -> CheckReport:
        """What check mode says of the nodes that custom kernels compute, for these inputs.

        Raises ``InputError`` for sessions without ``check="access"``.
        """
        from onedispatch.dispatch.check.observer import AccessCheck

        check = self._check or AccessCheck(None, self._values, options)
        return check.report(self.model, checked_feed(self._inputs, input_feed)[0], options)

    def _values(self, model: CompiledModel, feed: Mapping[str, Any]) -> list[Any]:
        """One run of ``model`` beside this session."""
        session = InferenceSession(
            model, threads=self._options.threads, kernel_seconds=self._options.kernel_seconds
        )
        return session.run(None, feed)

    def _take_turn(self) -> None:
        """Under the lock, which a signal handler passes too that interrupts a run of its own thread.

        The mark that a run leaves may outlive one that an error or a handler ended: the stack says whether
        it did.
        """
        if self._lock.take_lost():  # a thread of the parent was running when this process was forked
            self._runners.forget()
        frame = sys._getframe(1).f_back if self._running else None
        while frame is not None:
            if frame.f_code is _RESULTS and frame.f_locals["self"] is self:
                raise DeviceError(
                    "InferenceSession.run",
                    "a run while one of the same session is under way on this thread",
                    "one run after the other",
                    "start no run of it from a signal handler",
                )
            frame = frame.f_back
        self._running = True

    def _step(
        self, runner: Runner, values: dict[str, Any], direct: Mapping[str, Array]
    ) -> Callable[[], RunReport]:
        """Runs a step, whose results join ``values``. Returns what makes its report."""
        if not runner.on_device:
            return self._region(runner, values)
        try:
            values.update(runner.run(values, direct))
        finally:  # what was printed before a failure tells why
            if runner.prints:
                self._prints.add(runner.prints)
        return runner.report

    def _region(self, region: HostRegion, values: dict[str, Any]) -> Callable[[], RunReport]:
        """Runs a step on the host."""
        start = time.perf_counter()
        with self._prints.on_host() as printed:
            values.update(region.run(values))
        while region.moved:
            warnings.warn(region.moved.pop(), RuntimeWarning, stacklevel=6)
        seconds = time.perf_counter() - start
        work = HostWork("region", ", ".join(region.engines), seconds)
        took = RunReport(0, 0, 0.0, host_seconds=seconds, prints=tuple(printed), host_work=(work,))
        return lambda: took

    def _wanted(self, names: Sequence[str] | None) -> list[int]:
        wanted = arguments.names("output_names", names)
        for name in wanted:
            if name not in self._outputs:
                raise InputError("output_names", repr(name), f"None, or some of {list(self._outputs)}")
        return [self._outputs[name] for name in wanted or self._outputs]


_RESULTS = InferenceSession._results.__code__
