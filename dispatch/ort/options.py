# SPDX-License-Identifier: Apache-2.0
"""``SessionOptions`` and ``RunOptions``: onnxruntime's attributes, each with what it accepts and means."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, TypeVar

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.ort.enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, LoggingLevel
from onedispatch.dispatch.ort.without_meaning import name_once, refusing
from onedispatch.transactions.base.boundary import guarded
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.host import MOST_THREADS
from onedispatch.transactions.base.signature import bounded_repr, matches_hint

PREFIX = "onedispatch."  # of entries of the configuration that are options of InferenceSession
NO_FALLBACK = "session.disable_cpu_ep_fallback"  # of onnxruntime; "1": fallback="error"
_MOST = (1 << 31) - 1
_PASSES = "the compiler runs all of its passes"
_ORDER = "a model is one transaction, which the compiler orders"
_MEMORY = "memory is planned when the model is compiled"
_NO_LOG = "nothing is logged"
_Check = Callable[[str, Any], Any]
E = TypeVar("E", bound=IntEnum)


class Setting(NamedTuple):
    """An attribute; ``ignored``: why it means nothing here, "" where it means something or does no harm."""

    default: Any
    check: _Check
    ignored: str = ""


def _flag(where: str, value: Any) -> bool:
    return bool(arguments.integer(where, int(value) if isinstance(value, bool) else value, 0, 1))


def _number(least: int, most: int = _MOST) -> _Check:
    return lambda where, value: arguments.integer(where, value, least, most)


def _member(enum: type[E]) -> _Check:
    def check(where: str, value: Any) -> E:
        if not matches_hint(value, int) or operator.index(value) not in list(enum):
            accepted = ", ".join(f"{enum.__name__}.{one.name}" for one in enum)
            raise InputError(where, bounded_repr(value), accepted)
        return enum(operator.index(value))

    return check


def _text(where: str, value: Any) -> str:
    return arguments.text(where, value)


def _no_file(where: str, value: Any) -> str:
    if value:
        remedy = "save what is compiled: onedispatch.compile(model).save(path)"
        raise InputError(where, bounded_repr(value), "'': no optimised ONNX is written", remedy)
    return ""


_SEVERITY = Setting(-1, _number(-1, LoggingLevel.FATAL))
_VERBOSITY = Setting(0, _number(-_MOST), _NO_LOG)


class _Settings:
    """Attributes by a table, and a configuration of named texts.

    Setting an attribute raises ``AttributeError`` for an unknown name, ``InputError`` for a wrong value.
    """

    _table: ClassVar[Mapping[str, Setting]]
    _entries: dict[str, str]

    def __init__(self) -> None:
        object.__setattr__(self, "_entries", {})
        for name, setting in self._table.items():
            object.__setattr__(self, name, setting.default)

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(self).__name__
        if name not in self._table:
            raise AttributeError(f"{kind} has no attribute {name!r}: there are {', '.join(self._table)}")
        object.__setattr__(self, name, self._table[name].check(f"{kind}.{name}", value))

    def _name_ignored(self, severity: int) -> None:
        """Names the attributes that were set and mean nothing, each once in a process."""
        kind = type(self).__name__
        for name, setting in self._table.items():
            value = getattr(self, name)
            if setting.ignored and value != setting.default:
                text = f"{kind}.{name} = {value!r} means nothing here: {setting.ignored}"
                name_once(f"{kind}.{name}", text, severity)

    def _add(self, name: str, value: str) -> None:
        where = f"{type(self).__name__}, entry of the configuration"
        if not arguments.text(where, name):
            raise InputError(where, "''", "a key")
        self._entries[name] = arguments.text(f"{where} {name!r}", value)

    def _get(self, name: str) -> str:
        if name not in self._entries:
            where = f"{type(self).__name__}, entry of the configuration"
            raise InputError(where, bounded_repr(name), f"some of {list(self._entries)}")
        return self._entries[name]


_NO_INITIALIZER = "give the model with the values in it"
_OTHER_DEVICES = "name the device: InferenceSession(model, device=...)"


REFUSED_OF_SESSIONS = {
    "register_custom_ops_library": "name kernel libraries or Python files with kernels: "
    "InferenceSession(model, plugins=[...])",
    "add_initializer": _NO_INITIALIZER,
    "add_external_initializers": _NO_INITIALIZER,
    "add_external_initializers_from_files_in_memory": "give the path of the model beside its files",
    "add_provider_for_devices": _OTHER_DEVICES,
    "set_provider_selection_policy": _OTHER_DEVICES,
    "set_provider_selection_policy_delegate": _OTHER_DEVICES,
    "set_ep_context_data_read_func": "use onedispatch.compile and CompiledModel.save",
    "clear_ep_context_data_read_func": "use onedispatch.compile and CompiledModel.save",
    "set_load_cancellation_flag": "interrupt the process (Ctrl-C)",
}
REFUSED_OF_RUNS = {"add_active_adapter": "merge the adapter into the model's weights"}


@guarded
@refusing(REFUSED_OF_SESSIONS)
class SessionOptions(_Settings):
    """Options of a session under onnxruntime's names.

    ``intra_op_num_threads`` is ``threads`` of ``InferenceSession``, ``enable_profiling`` traces runs until
    ``end_profiling``; ``log_severity_level`` from 3 on keeps quiet of options that mean nothing. Entries
    ``onedispatch.NAME`` of the configuration are options of ``InferenceSession``.
    """

    enable_cpu_mem_arena: bool
    enable_mem_pattern: bool
    enable_mem_reuse: bool
    enable_profiling: bool
    execution_mode: ExecutionMode
    execution_order: ExecutionOrder
    graph_optimization_level: GraphOptimizationLevel
    inter_op_num_threads: int
    intra_op_num_threads: int
    log_severity_level: int
    log_verbosity_level: int
    logid: str
    optimized_model_filepath: str
    profile_file_prefix: str
    use_deterministic_compute: bool
    use_per_session_threads: bool

    _table: ClassVar[Mapping[str, Setting]] = {
        "enable_cpu_mem_arena": Setting(True, _flag, _MEMORY),
        "enable_mem_pattern": Setting(True, _flag, _MEMORY),
        "enable_mem_reuse": Setting(True, _flag, _MEMORY),
        "enable_profiling": Setting(False, _flag),
        "execution_mode": Setting(ExecutionMode.ORT_SEQUENTIAL, _member(ExecutionMode), _ORDER),
        "execution_order": Setting(ExecutionOrder.DEFAULT, _member(ExecutionOrder), _ORDER),
        "graph_optimization_level": Setting(
            GraphOptimizationLevel.ORT_ENABLE_ALL, _member(GraphOptimizationLevel), _PASSES
        ),
        "inter_op_num_threads": Setting(0, _number(-_MOST), _ORDER),
        "intra_op_num_threads": Setting(0, _number(-_MOST, MOST_THREADS)),
        "log_severity_level": _SEVERITY,
        "log_verbosity_level": _VERBOSITY,
        "logid": Setting("", _text),
        "optimized_model_filepath": Setting("", _no_file),
        "profile_file_prefix": Setting("onedispatch_profile_", _text),
        "use_deterministic_compute": Setting(False, _flag),  # results always are
        "use_per_session_threads": Setting(True, _flag, "threads belong to their session"),
    }

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "_providers", [])
        object.__setattr__(self, "_dimensions", {})

    def add_session_config_entry(self, name: str, value: str) -> None:
        """Sets an entry of the configuration. Raises ``InputError`` for what is no text."""
        self._add(name, value)

    def get_session_config_entry(self, name: str) -> str:
        """An entry of the configuration. Raises ``InputError`` for one that was not set."""
        return self._get(name)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Says the size of a dimension of the inputs; where all are known, the model is compiled at once."""
        where = "SessionOptions.add_free_dimension_override_by_name"
        self._dimensions[arguments.text(where, name)] = arguments.integer(
            f"{where}({name!r})", size, 0, _MOST
        )

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Accepted, without meaning."""
        text = f"denotation {denotation!r} of a dimension means nothing here: sizes are those of a run"
        name_once("denotation", text, self.log_severity_level)

    def add_provider(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        """Names a provider, as ``providers`` of ``InferenceSession`` does."""
        self._providers.append((arguments.text("SessionOptions.add_provider", name), dict(options or {})))

    def has_providers(self) -> bool:
        return bool(self._providers)

    _providers: list[tuple[str, dict[str, Any]]]
    _dimensions: dict[str, int]


@guarded
@refusing(REFUSED_OF_RUNS)
class RunOptions(_Settings):
    """Options of a run under onnxruntime's names. ``terminate`` ends a run before its next step."""

    log_severity_level: int
    log_verbosity_level: int
    logid: str
    only_execute_path_to_fetches: bool
    terminate: bool

    _table: ClassVar[Mapping[str, Setting]] = {
        "log_severity_level": _SEVERITY,
        "log_verbosity_level": _VERBOSITY,
        "logid": Setting("", _text),
        "only_execute_path_to_fetches": Setting(False, _flag, "a run is one transaction, of all outputs"),
        "terminate": Setting(False, _flag),
    }

    def add_run_config_entry(self, name: str, value: str) -> None:
        """Sets an entry of the configuration, which means nothing here."""
        self._add(name, value)

    def get_run_config_entry(self, name: str) -> str:
        """An entry of the configuration. Raises ``InputError`` for one that was not set."""
        return self._get(name)


def begin_run(where: str, options: Any) -> Any:
    """Checks the options of a run, and names those that mean nothing here. Returns them, None for none.

    Raises ``InputError`` for what are no such options.
    """
    if options is None:
        return None
    if not isinstance(options, RunOptions):
        if isinstance(getattr(options, "terminate", None), bool):
            return options  # onnxruntime's own
        raise InputError(f"{where}, run_options", bounded_repr(options), "None, or a RunOptions")
    options._name_ignored(options.log_severity_level)
    if options._entries:
        text = f"entries {list(options._entries)} of RunOptions mean nothing here"
        name_once("RunOptions, entries", text, options.log_severity_level)
    return options


def check_going_on(where: str, options: Any) -> None:
    """Raises ``InputError`` where the options of the run say that it is to end."""
    if options is not None and options.terminate:
        remedy = "set it to False for the next run"
        raise InputError(where, "run_options.terminate = True", "a run that may go on", remedy)
