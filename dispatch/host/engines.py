# SPDX-License-Identifier: Apache-2.0
"""The engines of the host: onnxruntime, and onnx's reference evaluator for the operators that onnxruntime
lacks or computes differently from ONNX's definition.

An engine is made for a model of a few nodes and takes values by name. It gives the reason if it refuses.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np

from onedispatch.dispatch.base.forks import ForkLock
from onedispatch.dispatch.base.interruptible import interruptible
from onedispatch.dispatch.frontend.graph import Node
from onedispatch.transactions.base.boundary import error_line
from onedispatch.transactions.base.errors import InputError, KernelError, ModelError
from onedispatch.transactions.base.handlers import reraise_from_handler

RUNTIME = "onnxruntime"
REFERENCE = "onnx's reference evaluator"

# Operators that run on the reference evaluator in place of onnxruntime, with the reason. It also computes
# Fourier transforms faster: 10,000 windows of 400 in half the time, 1000 frames of 400 in a tenth.
PREFERRED = {
    "DFT": "onnxruntime's loses digits that ONNX's own tests ask for",
    "STFT": "onnxruntime's loses digits that ONNX's own tests ask for",
    "Dropout": "in training mode onnxruntime draws other numbers from a seed than ONNX's own tests",
}

_SHORT_SECONDS = 0.05  # runs this short need not be interruptible
_SMALL_BYTES = 1 << 18  # regions that touch fewer bytes end before a second thread wakes up


class Engine(Protocol):
    """Computes the outputs of a few nodes from the values of their inputs."""

    name: str

    def run(self, feed: Mapping[str, Any]) -> list[Any]: ...


class EngineRefused(Exception):
    """Raised by an engine that refuses a model, with the first line of its message."""


class Pools:
    """Counts the threads of all onnxruntime sessions of this process.

    onnxruntime starts a thread pool per session; a process-wide pool can only be set up before the first
    session of the process. So a session gets what is left of ``most`` threads, and computes on the caller's
    thread alone if none is left.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._lock = ForkLock()  # re-entrant: a finalizer may run while its own thread holds it

    def take(self, wanted: int) -> int:
        """Grants a session up to ``wanted`` threads beside the caller's; returns how many."""
        with self._lock.guard:
            granted = max(0, min(wanted, self._left))
            self._left -= granted
        return granted

    def give_back(self, count: int) -> None:
        """Returns threads that ``take`` granted."""
        with self._lock.guard:
            self._left += count


_CPUS = os.cpu_count() or 1
POOLS = Pools(max(32, 4 * _CPUS))


class Runtime:
    """onnxruntime on a model, given as bytes or path; raises ``EngineRefused`` if it refuses the model.

    Args:
        threads: the most host threads that a run may use, None for one per CPU.
        touched: bytes that a run reads and writes, None if unknown; small runs get no thread pool.
        optimise: whether onnxruntime optimises the graph, once.
    """

    name = RUNTIME

    def __init__(
        self,
        model: bytes | str,
        outputs: Sequence[str],
        threads: int | None,
        touched: int | None,
        optimise: bool,
    ) -> None:
        import onnxruntime

        small = touched is not None and touched < _SMALL_BYTES
        more = 0 if small else POOLS.take((threads or _CPUS) - 1)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.inter_op_num_threads = 1
        options.intra_op_num_threads = 1 + more
        options.enable_cpu_mem_arena = not small  # sessions do not share their arenas
        if not optimise:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL

        def make() -> Any:
            return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

        try:
            self._session = interruptible(make)
        except _runtime_errors() as error:
            reraise_from_handler(error)
            POOLS.give_back(more)
            raise EngineRefused(_first_line(error)) from error
        weakref.finalize(self, POOLS.give_back, more)
        self._outputs = list(outputs)
        self._new_options = onnxruntime.RunOptions
        self._seconds = float("inf")  # of the previous run
        if more:
            _WITH_THREADS.add(self)

    @property
    def types(self) -> dict[str, str]:
        """The types of the outputs, as onnxruntime infers them."""
        return {value.name: value.type for value in self._session.get_outputs()}

    @property
    def shapes(self) -> dict[str, list[int | str | None]]:
        """The shapes of the outputs, as onnxruntime infers them; [] for scalars and unknown shapes."""
        return {value.name: list(value.shape) for value in self._session.get_outputs()}

    def run(self, feed: Mapping[str, Any]) -> list[Any]:
        """Returns the outputs. Raises ``InputError`` with onnxruntime's message."""
        try:
            return list(self._run(dict(feed)))
        except _runtime_errors() as error:
            reraise_from_handler(error)
            raise InputError(
                "nodes on onnxruntime", _first_line(error), "values that these nodes take"
            ) from error

    def _run(self, feed: dict[str, Any]) -> Any:
        start = time.perf_counter()
        if self._seconds < _SHORT_SECONDS:
            values = self._session.run(self._outputs, feed)
        else:
            options = self._new_options()
            values = interruptible(
                lambda: self._session.run(self._outputs, feed, options), lambda: _terminate(options)
            )
        self._seconds = time.perf_counter() - start
        return values

    def keep_alive(self) -> None:
        """Leaks the session in a forked child, where destroying it would wait for threads that are gone."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._session))


def _terminate(options: Any) -> None:
    options.terminate = True


_WITH_THREADS: weakref.WeakSet[Runtime] = weakref.WeakSet()


def _in_child() -> None:
    """Keeps onnxruntime, in sessions and at exit, from waiting for threads that a forked child lacks."""
    for engine in list(_WITH_THREADS):
        engine.keep_alive()
    if "onnxruntime" in sys.modules:
        from onedispatch.dispatch.base.native import core

        core.skip_exit_handlers()


os.register_at_fork(after_in_child=_in_child)


@cache
def _runtime_errors() -> tuple[type[Exception], ...]:
    """Returns the exceptions of onnxruntime's binding: its own, which have no common base, and builtins."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    own = [v for v in vars(state).values() if isinstance(v, type) and issubclass(v, Exception)]
    return (*own, RuntimeError, ValueError, TypeError)


def _first_line(error: Exception) -> str:
    """Returns the first line of onnxruntime's message, without error number and source file."""
    text = error_line(error).partition(": ")[2] or error_line(error)
    return text.split("[ONNXRuntimeError] :", 1)[-1].strip()


class Reference:
    """onnx's reference evaluator on a model of one node.

    ``own`` are classes for operators in its bodies that onnx lacks. Raises ``ModelError`` if the evaluator
    has no implementation, or its implementation fails.
    """

    name = REFERENCE

    def __init__(self, model: Any, node: Node, outputs: Sequence[str], own: Sequence[Any] = ()) -> None:
        from onnx.reference import ReferenceEvaluator

        self._node = node
        self._outputs = list(outputs)
        declared = {info.name: info.type.tensor_type.elem_type for info in model.graph.output}
        self._types = [declared.get(name, 0) for name in outputs]
        try:
            self._evaluator = ReferenceEvaluator(model, new_ops=list(own))
        except Exception as error:  # NotImplementedError, RuntimeContextError, TypeError ...
            reraise_from_handler(error)
            raise no_engine_error(node, error_line(error)) from error

    def run(self, feed: Mapping[str, Any]) -> list[Any]:
        try:
            with np.errstate(all="ignore"):  # infinities are values of ONNX, not warnings
                results = self._evaluator.run(self._outputs, dict(feed))
        except KernelError:
            raise
        except Exception as error:  # whatever a NumPy implementation raises on odd input
            reraise_from_handler(error)
            raise no_engine_error(self._node, error_line(error)) from error
        return [_declared(result, kind) for result, kind in zip(results, self._types, strict=True)]


def _declared(result: Any, kind: int) -> Any:
    """Casts a float to the type that ONNX declares, 0 if unknown: NumPy widens floats where ONNX does not."""
    from onnx.helper import tensor_dtype_to_np_dtype

    if not kind or not np.issubdtype(getattr(result, "dtype", np.void), np.floating):
        return np.asarray(result) if np.isscalar(result) else result
    return np.asarray(result, tensor_dtype_to_np_dtype(kind))


class UnsupportedEngine:
    """The engine of a node that no other engine supports: raises its error when it is run."""

    name = "nothing"

    def __init__(self, error: ModelError) -> None:
        self._error = error

    def run(self, feed: Mapping[str, Any]) -> list[Any]:
        raise self._error


def no_engine_error(node: Node, why: str) -> ModelError:
    """Returns the error for a node that no engine supports."""
    return ModelError(
        f"node {node.name} ({node.op_type})",
        f"an operator that neither onnxruntime nor onnx's reference evaluator runs: {why}",
        "operators of onnx or onnxruntime",
        # Rules are done once a model is compiled; what computes a node on the host is not saved with it.
        "load the plug-in that has its host implementation (od.host)" if node.domain else "",
    )
