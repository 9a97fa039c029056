# SPDX-License-Identifier: Apache-2.0
"""The exception tree of all layers.

``OneDispatchError`` is the root. Every error states where it happened, what was given, what is
accepted, and the remedy. All layers import from here, so one ``except onedispatch.OneDispatchError``
catches every error that the package raises on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class OneDispatchError(Exception):
    """Root of the tree.

    Args:
        where: the operation or object that failed, named so that the reader can find it.
        given: the value that was found there.
        accepted: the values that are valid.
        remedy: what the reader can do about it.
    """

    def __init__(self, where: str, given: str = "", accepted: str = "", remedy: str = "") -> None:
        super().__init__(where, given, accepted, remedy)
        self.where = where
        self.given = given
        self.accepted = accepted
        self.remedy = remedy

    def location(self) -> str:
        """Returns where it happened, with the coordinates that the subclass knows."""
        return self.where

    def __str__(self) -> str:
        text = self.location()
        if self.given:
            text += f": given {self.given}"
        if self.accepted:
            text += f"; accepted: {self.accepted}"
        if self.remedy:
            text += f". {self.remedy[0].upper()}{self.remedy[1:].rstrip('.')}"
            text += "" if text.endswith("?") else "."
        return text

    def statement(self) -> str:
        """Returns the error as one clause for another one's text, where ``str`` would repeat "given"."""
        text = ": ".join(filter(None, (self.location(), self.given)))
        return f"{text} (expected: {self.accepted})" if self.accepted else text

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (tuning runs in many processes), extra fields included.
        return (_rebuild, (type(self), self.args, self.__dict__))


def statement_of(error: BaseException) -> str:
    """Returns the text of any exception as one clause for another error's text."""
    return error.statement() if isinstance(error, OneDispatchError) else str(error) or type(error).__name__


def reason_of(error: BaseException, named: str) -> str:
    """Returns what is wrong, for an error that names its place ``named`` and what is accepted itself."""
    if not isinstance(error, OneDispatchError) or not error.given:
        return statement_of(error)
    place = error.location()
    return error.given if place in named else f"{place}: {error.given}"


def _rebuild(cls: type[OneDispatchError], args: tuple[str, ...], state: dict[str, Any]) -> OneDispatchError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ModelError(OneDispatchError):
    """The model is invalid: not ONNX, a missing initializer, an impossible type."""


class UnsupportedModelError(OneDispatchError):
    """The model is valid, but some nodes do not map onto the device.

    ``nodes`` holds one line per node that does not map, each with its reason.
    """

    def __init__(
        self,
        where: str,
        given: str = "",
        accepted: str = "",
        remedy: str = "",
        *,
        nodes: Iterable[str] = (),
    ) -> None:
        super().__init__(where, given, accepted, remedy)
        self.nodes = tuple(nodes)

    def __str__(self) -> str:
        return "\n  ".join([super().__str__(), *self.nodes])

    def statement(self) -> str:
        return "; ".join([super().statement(), *self.nodes])


class UnknownOperatorError(ModelError, UnsupportedModelError):
    """The model has operators of unknown domains: neither ONNX, nor the host, nor a plug-in defines them.

    ``nodes`` holds one line for each.
    """


class InputError(OneDispatchError):
    """An argument or an input tensor does not fit: name, shape, dtype or range."""


class OperatorError(OneDispatchError):
    """A device operator's declaration is wrong: its loop nest does not match what its kernel computes."""


class SolutionError(OneDispatchError):
    """A solution does not fit its problem, or a problem or solution cannot be read.

    ``would_fit`` is a valid solution, as data, where one is known.
    """

    def __init__(
        self,
        where: str,
        given: str = "",
        accepted: str = "",
        remedy: str = "",
        *,
        would_fit: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(where, given, accepted, remedy)
        self.would_fit = would_fit


class CatalogError(OneDispatchError):
    """A catalog of solutions, or a tuner's log, cannot be read: damaged, or of another version."""


class DeviceError(OneDispatchError):
    """The device does not exist, its description is invalid, or it does not support the request."""


class KernelError(OneDispatchError):
    """A custom kernel, a kernel library, or a node that a custom kernel runs is refused or fails.

    One subclass exists for each status of ``operators/declarations/statuses.py``; ``except
    onedispatch.KernelError`` catches them all.

    ``status`` is the code of ``onedispatch/kernel.h``; ``node`` names the node of the model, "" if no node
    is concerned; ``expected`` (an alias of ``accepted``) and ``given`` are the two sides that differ.
    """

    status: int = -3

    def __init__(
        self,
        where: str,
        given: str = "",
        accepted: str = "",
        remedy: str = "",
        *,
        status: int | None = None,
        node: str = "",
        **more: Any,
    ) -> None:
        super().__init__(where, given, accepted, remedy, **more)
        self.node = node
        if status is not None:
            self.status = status

    @property
    def expected(self) -> str:
        return self.accepted


class KernelLibraryError(KernelError):
    """A kernel library or a kernel is refused: wrong version, no kernels, or a name that is taken."""


class RuleError(OneDispatchError):
    """A mapping rule or a fusion is wrong, or what it does to a node is.

    ``file`` and ``line`` say where the rule is, "" and 0 where that is not known; ``conflict``: another rule
    is for the same.
    """

    def __init__(
        self,
        where: str,
        given: str = "",
        accepted: str = "",
        remedy: str = "",
        *,
        file: str = "",
        line: int = 0,
        conflict: bool = False,
    ) -> None:
        super().__init__(where, given, accepted, remedy)
        self.file = file
        self.line = line
        self.conflict = conflict

    def location(self) -> str:
        return f"{self.where} ({self.file}, line {self.line})" if self.file else self.where


class CompiledModelError(OneDispatchError):
    """A saved model or xclbin cannot be read: another format, damaged, or another version."""


class ResourceError(OneDispatchError):
    """The machine lacks a resource: memory, or depth of the interpreter's stack."""


class InternalError(OneDispatchError):
    """A defect of OneDispatch or of a plug-in; ``__cause__`` is the original exception.

    ``where`` names the public call, or the plug-in's function with its node, and the line.
    """

    def location(self) -> str:
        return f"internal error in {self.where}"

    def __str__(self) -> str:
        accepted = f"; accepted: {self.accepted}" if self.accepted else ""
        return f"{self.location()}: {self.given}{accepted}. {self.remedy}"


class _AtOperation(OneDispatchError):
    """Base of the errors that point into a transaction."""

    def __init__(
        self,
        where: str,
        given: str = "",
        accepted: str = "",
        remedy: str = "",
        *,
        op_index: int | None = None,
        byte_offset: int | None = None,
    ) -> None:
        super().__init__(where, given, accepted, remedy)
        self.op_index = op_index
        self.byte_offset = byte_offset

    def location(self) -> str:
        marks = []
        if self.op_index is not None:
            marks.append(f"op {self.op_index}")
        if self.byte_offset is not None:
            marks.append(f"byte {self.byte_offset}")
        return f"{self.where} ({', '.join(marks)})" if marks else self.where


class TransactionError(_AtOperation):
    """A transaction cannot be decoded, encoded or fused.

    ``op_index`` counts operations from 0; ``byte_offset`` counts from the file's first byte.
    """


class SimulationError(_AtOperation):
    """A transaction cannot run: deadlock, bad address, unrouted stream and the like.

    ``tile`` ("c2 r1") and ``register`` (its name) are set if known.
    """

    def __init__(
        self,
        where: str,
        given: str = "",
        accepted: str = "",
        remedy: str = "",
        *,
        op_index: int | None = None,
        byte_offset: int | None = None,
        tile: str = "",
        register: str = "",
    ) -> None:
        super().__init__(where, given, accepted, remedy, op_index=op_index, byte_offset=byte_offset)
        self.tile = tile
        self.register = register
