# SPDX-License-Identifier: Apache-2.0
"""Arguments of onnxruntime's ``InferenceSession`` as arguments of ours: options, providers, configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from onedispatch.dispatch.ort.options import NO_FALLBACK, PREFIX, SessionOptions
from onedispatch.dispatch.ort.without_meaning import name_once
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import did_you_mean

PROVIDER = "OneDispatchExecutionProvider"
HOST = "CPUExecutionProvider"
Providers = Sequence[str | tuple[str, Mapping[str, Any]]]
ProviderOptions = Sequence[Mapping[str, Any]]

_WITHOUT = ("enable_fallback", "read_config_from_model", "disabled_optimizers")  # no meaning here
# Texts of options that are numbers: provider options and the configuration of onnxruntime are texts.
_NUMBERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("threads", "cache_size", "print_bytes", "trace"), int),
    **dict.fromkeys(("kernel_seconds", "check_seconds"), float),
}


class Translated(NamedTuple):
    """The model, and our own arguments; ``options``: onnxruntime's, None where there were none."""

    model: Any
    given: dict[str, Any]
    options: SessionOptions | None

    @property
    def dimensions(self) -> Mapping[str, int]:
        """Sizes of named dimensions that the options say."""
        return {} if self.options is None else dict(self.options._dimensions)


def translated(model: Any, given: Mapping[str, Any], known: Iterable[str]) -> Translated:
    """Our arguments, from ours and onnxruntime's: by name, or in its order behind the model.

    What ``given`` says itself counts before options of our provider, these before entries of the
    configuration. ``known`` are the names of our options.

    Raises ``InputError`` for arguments that are given twice, and for malformed providers and options.
    """
    rest = _by_position(given)
    model = _once("path_or_bytes", model, rest.pop("path_or_bytes", None))
    options, listed = rest.pop("sess_options", None), rest.pop("providers", None)
    if options is not None and not isinstance(options, SessionOptions):
        raise InputError("sess_options", bounded_repr(options), "None, or an onedispatch.SessionOptions")
    asked = providers_of(listed, rest.pop("provider_options", None))
    severity = -1 if options is None else options.log_severity_level
    _ignore(rest, severity)
    if options is not None:
        options._name_ignored(severity)
        asked = asked or providers_of(options._providers)
    _name_providers(asked, severity)
    sources = [asked.get(PROVIDER, {}), *([] if options is None else [_configured(options, severity)])]
    for source in sources:
        for name, value in _own(source, known).items():
            if rest.get(name) is None:
                rest[name] = value
    return Translated(model, rest, options)


def _by_position(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name, where they came in onnxruntime's order."""
    rest = dict(given)
    if isinstance(rest["device"], SessionOptions):
        rest["sess_options"] = _once("sess_options", rest["device"], rest.get("sess_options"))
        rest["device"] = None
    for ours, name in (("precision", "providers"), ("fallback", "provider_options")):
        if isinstance(rest[ours], list | tuple):
            rest[name] = _once(name, rest[ours], rest.get(name))
            rest[ours] = None
    return rest


def _once(name: str, first: Any, second: Any) -> Any:
    if first is not None and second is not None:
        raise InputError("InferenceSession", f"{name} twice", "it once, by position or by name")
    return second if first is None else first


def _ignore(rest: dict[str, Any], severity: int) -> None:
    for name in _WITHOUT:
        if rest.pop(name, None) is not None and name != "enable_fallback":  # which is on by default
            name_once(name, f"{name} of InferenceSession means nothing here", severity)


def providers_of(given: Any, options: Any = None) -> dict[str, Mapping[str, Any]]:
    """Options of each provider, by its name, in order. Raises ``InputError`` for malformed arguments."""
    accepted = "names of providers, or pairs of a name and a dict of options"
    given = [given] if isinstance(given, str) else given
    if given is not None and not isinstance(given, list | tuple):
        raise InputError("providers", bounded_repr(given), f"a list of {accepted}")
    pairs = [one if isinstance(one, tuple) else (one, {}) for one in given or ()]
    if options is not None:
        if not isinstance(options, list | tuple) or len(options) != len(pairs):
            raise InputError("provider_options", bounded_repr(options), "a list, a dict for each provider")
        pairs = [(one[0], said) for one, said in zip(pairs, options, strict=True)]
    found: dict[str, Mapping[str, Any]] = {}
    for pair in pairs:
        match pair:
            case (str() as name, dict() as said):
                found.setdefault(name, said)
            case _:
                raise InputError("providers", bounded_repr(pair), accepted)
    return found


def _name_providers(asked: Mapping[str, Any], severity: int) -> None:
    others = [name for name in asked if name != PROVIDER and not (name == HOST and PROVIDER in asked)]
    if others:
        where = f"nodes run on the simulated NPU ({PROVIDER}), and what does not map on the host"
        name_once("providers", f"providers {others} mean nothing here: {where}", severity)


def _configured(options: SessionOptions, severity: int) -> dict[str, Any]:
    """The options that entries of the configuration say; others mean nothing."""
    entries = options._entries
    own: dict[str, Any] = {
        key.removeprefix(PREFIX): text for key, text in entries.items() if key.startswith(PREFIX)
    }
    others = [key for key in entries if not key.startswith(PREFIX) and key != NO_FALLBACK]
    if others:
        text = f"entries {others} of the configuration mean nothing here"
        name_once("SessionOptions, entries", text, severity)
    if entries.get(NO_FALLBACK) == "1":
        own.setdefault("fallback", "error")
    if options.intra_op_num_threads > 0:
        own.setdefault("threads", options.intra_op_num_threads)
    if options.enable_profiling:
        own.setdefault("trace", True)
    return own


def _own(said: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Options of ours with values of their types. Raises ``InputError`` for an unknown one."""
    names = list(known)
    for name in said:
        if not isinstance(name, str) or name not in names:
            accepted = f"some of {', '.join(sorted(names))}"
            raise InputError(
                f"an option of {PROVIDER}",
                bounded_repr(name),
                accepted,
                did_you_mean(bounded_repr(name), names),
            )
    return {name: _typed(name, value) for name, value in said.items()}


def _typed(name: str, value: Any) -> Any:
    number = _NUMBERS.get(name) if isinstance(value, str) else None
    try:
        return value if number is None else number(value)
    except ValueError as error:
        raise InputError(name, bounded_repr(value), "a number") from error


def named_providers(fallback: str) -> list[str]:
    """What computes nodes: the simulated NPU, and the host where nodes may fall back to it."""
    return [PROVIDER, HOST] if fallback == "cpu" else [PROVIDER]
