# SPDX-License-Identifier: Apache-2.0
"""Methods of onnxruntime's ``InferenceSession`` that say and run what our own ones do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from typing import Any

from onedispatch.dispatch.artifact.model import CompiledModel
from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.frontend.graph import ModelMetadata
from onedispatch.dispatch.ort.options import SessionOptions
from onedispatch.dispatch.ort.providers import (
    PROVIDER,
    ProviderOptions,
    Providers,
    named_providers,
    providers_of,
)
from onedispatch.dispatch.ort.values import OrtValue
from onedispatch.dispatch.runtime.profiling import Profiling
from onedispatch.transactions.base.boundary import guarded
from onedispatch.transactions.base.errors import InputError, OneDispatchError

_HERE = "devices are named when a session is made: InferenceSession(model, device=...)"
REFUSED = {
    "get_input_epdevices": _HERE,
    "get_input_memory_infos": "inputs and outputs are in the host's memory",
    "get_output_memory_infos": "inputs and outputs are in the host's memory",
    "get_provider_graph_assignment_info": "read session.placement: where each node runs, and why",
    "get_tuning_results": "tune with `onedispatch tune`, which writes a catalog",
    "set_tuning_results": "name a catalog: InferenceSession(model, catalog=...)",
    "release_captured_graph": "nothing is captured; recordings of runs go with the session",
    "run_with_ortvaluevector": "use run_with_ort_values",
    "set_ep_dynamic_options": _HERE,
}


@guarded
class OrtMethods(ABC):
    """See ``InferenceSession``. All raise ``InputError`` for arguments that do not fit."""

    _ort_options: SessionOptions | None
    _profiling: Profiling | None
    _threads: int | None

    @property
    @abstractmethod
    def model(self) -> CompiledModel: ...

    @abstractmethod
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: object = None
    ) -> list[Any]: ...

    # -- what it is ------------------------------------------------------------------------

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself; of a compiled model what the ONNX file said."""
        return self.model.metadata

    def get_overridable_initializers(self) -> list[Any]:
        """None: initializers are constants of the compiled model."""
        return []

    def get_session_options(self) -> SessionOptions:
        """The options that it was made with, or the default ones with its threads."""
        if self._ort_options is None:
            self._ort_options = SessionOptions()
            self._ort_options.intra_op_num_threads = self._threads or 0
        return self._ort_options

    def get_providers(self) -> list[str]:
        """What computes nodes, by preference: the simulated NPU, then the host where they may fall back."""
        return named_providers(self.model.fallback)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Options of each provider: what the model was compiled with."""
        names = ("device", "precision", "fallback", "cast_policy", "sums", "groups")
        own = {name: str(getattr(self.model, name)) for name in names}
        return {name: own if name == PROVIDER else {} for name in self.get_providers()}

    def set_providers(
        self, providers: Providers | None = None, provider_options: ProviderOptions | None = None
    ) -> None:
        """Accepts what changes nothing; options of ours that differ are for a new session."""
        own = self.get_provider_options()[PROVIDER]
        for name, value in providers_of(providers, provider_options).get(PROVIDER, {}).items():
            if own.get(name) != str(value):
                remedy = "make a new session with it"
                raise InputError("set_providers", f"{name} = {value!r}", f"what it is: {own}", remedy)

    def disable_fallback(self) -> None:  # noqa: B027 (it is meant to be empty)
        """Does nothing: no other provider takes over where a run fails."""

    def enable_fallback(self) -> None:  # noqa: B027 (the same)
        """Does nothing: no other provider takes over where a run fails."""

    # -- running ---------------------------------------------------------------------------

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: object = None,
    ) -> list[OrtValue]:
        """``run``, from values to values."""
        results = self.run(output_names, input_dict_ort_values, run_options)
        types = {value.name: value.type for value in self.model.outputs}
        names = arguments.names("output_names", output_names) or list(types)
        return [OrtValue(result, types[name]) for result, name in zip(results, names, strict=True)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: object = None,
    ) -> None:
        """``run`` on a thread of its own, which calls ``callback(results, user_data, error)``.

        Where the run fails, ``results`` is empty and ``error`` says why, else it is "".
        """
        if not callable(callback):
            raise InputError("run_async, callback", f"a {type(callback).__name__}", "a function")
        feed = dict(input_feed) if isinstance(input_feed, Mapping) else input_feed

        def work() -> None:
            results, error = list[Any](), ""
            try:
                results = self.run(output_names, feed, run_options)
            except OneDispatchError as failed:
                error = str(failed)
            callback(results, user_data, error)

        Thread(target=work, name="run_async").start()

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, *where: Any, **named: Any
    ) -> OrtValue:
        """``OrtValue.ortvalue_from_shape_and_type``."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, *where, **named)

    # -- profiling -------------------------------------------------------------------------

    def end_profiling(self) -> str:
        """Writes the runs since the session was made, and returns the file's name; "" where
        ``SessionOptions.enable_profiling`` was not set, or profiling has ended."""
        profiling, self._profiling = self._profiling, None
        return "" if profiling is None else profiling.write()

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, on the clock of ``time.monotonic_ns``; 0 without it."""
        return 0 if self._profiling is None else self._profiling.start_ns
