# SPDX-License-Identifier: Apache-2.0
"""The arg map of an operator, checked against its tensors: operators of plug-ins write their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np

from onedispatch.dispatch.base import limits
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.emission.overlay import overlay_transaction
from onedispatch.operators.interface.operator import MOST_ARGUMENTS, Operator, Unsupported
from onedispatch.operators.plugin.watchdog import asked_of
from onedispatch.operators.scheduling.index_space import OUTPUT
from onedispatch.transactions import ArgKind, ArgMap, Device, Transaction
from onedispatch.transactions.analysis import effects
from onedispatch.transactions.base.boundary import source_of
from onedispatch.transactions.base.errors import OperatorError, TransactionError
from onedispatch.transactions.base.signature import bounded_repr
from onedispatch.transactions.base.text import counted, span, tile_name

Refuse = Callable[[str, str, str], OperatorError]
"""(what, given, accepted): the error about the arg map of one operator"""


def checked_arg_map(operator: Operator, about: str) -> list[ArgMap]:
    """Returns the operator's arg map. Raises ``OperatorError`` for entries that name none of its tensors,
    outputs that no entry covers, and constants that the operator does not have.

    ``about`` names the nodes that the operator computes.
    """

    refuse = _refusing(operator, about)
    where = f"operator {operator.name} of {about}"
    try:
        given = asked_of(operator, where, operator.arg_map, Unsupported)
        activations = asked_of(operator, where, lambda: list(operator.activations), Unsupported)
    except TransactionError as error:  # of an entry that cannot be
        raise OperatorError(error.where, error.given, error.accepted, "correct that class") from error
    if not isinstance(given, list | tuple):
        raise refuse("arg map", bounded_repr(given), "a list of ArgMap")
    _check_activations(operator, activations, refuse)
    reads = len(activations)
    tensors = {
        ArgKind.INPUT: range(reads),
        ArgKind.OUTPUT: range(reads, reads + len(operator.outputs)),
    }
    for index, entry in enumerate(given):
        at = f"arg map, entry {index}"
        if not isinstance(entry, ArgMap):
            raise refuse(at, bounded_repr(entry), "an ArgMap")
        if not isinstance(entry.kind, ArgKind):
            raise refuse(f"{at}, kind", repr(entry.kind), f"an ArgKind: {', '.join(ArgKind.__members__)}")
        _check_numbers(entry, f"{at} ({entry.kind.name})", refuse)
        _check_bytes(entry.end, at, refuse)
        known = tensors.get(entry.kind)
        if known is not None and entry.onnx_arg_idx not in known:
            accepted = f"{span(known.start, known.stop - 1)}: inputs count from 0, outputs behind them"
            what = f"{at} ({entry.kind.name}, argument {entry.xrt_arg_idx}), onnx_arg_idx"
            raise refuse(what, str(entry.onnx_arg_idx), accepted)
    _check_outputs(operator, given, reads, refuse)
    _check_scratch(given, refuse)
    _check_constants(operator, given, about, refuse)
    return list(given)


def parameters_of(operator: Operator, about: str, entries: Sequence[ArgMap]) -> bytes:
    """Returns the parameters of an operator. Raises ``OperatorError`` where they are no bytes, or not as many
    as ``entries``, its arg map, say."""
    refuse = _refusing(operator, about)
    where = f"operator {operator.name} of {about}"
    params = asked_of(operator, where, operator.super_kernel_params, Unsupported)
    if not isinstance(params, bytes | bytearray | memoryview):
        raise refuse("super_kernel_params", bounded_repr(params), "bytes")
    said = [entry.size for entry in entries if entry.kind is ArgKind.CONST_KERNEL_PARAM_INPUT]
    if sum(said) != len(params):
        given = f"{counted(sum(said), 'byte')} of kernel parameters (CONST_KERNEL_PARAM_INPUT)"
        raise refuse("arg map", given, f"{len(params)}, which super_kernel_params gives")
    return bytes(params)


def transaction_of(operator: Operator, about: str) -> bytes:
    """Returns the transaction of an operator. Raises ``OperatorError`` for what is none, of a class that
    writes its own."""
    where, refuse = f"operator {operator.name} of {about}", _refusing(operator, about)
    made = asked_of(operator, where, operator.transaction, Unsupported)
    if not operator.owns_transaction:
        return made
    if not isinstance(made, bytes | bytearray | memoryview):
        raise refuse("transaction", bounded_repr(made), "the bytes of a transaction")
    try:
        _check_locks(Transaction.from_bytes(made), operator.device, refuse)
    except TransactionError as error:
        raise refuse(f"transaction, {error.where}", error.given, error.accepted) from error
    for name in ("in_place", "actual_sizes"):
        if not isinstance(getattr(operator, name), Mapping):
            raise refuse(name, repr(getattr(operator, name)), "names of tensors by name")
    for name in ("kind", "work_basis"):
        if not isinstance(getattr(operator, name), str):
            raise refuse(name, repr(getattr(operator, name)), "text")
    return bytes(made)


def explanation_of(operator: Operator, about: str) -> tuple[str, ...]:
    """Returns what an operator says of its schedule. Raises ``OperatorError`` for what are no lines."""
    where = f"operator {operator.name} of {about}"
    lines = asked_of(operator, where, operator.explain, Unsupported)
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        raise _refusing(operator, about)("explain", bounded_repr(lines), "a list of lines of text")
    return tuple(lines)


def macs_of(operator: Operator, about: str) -> int:
    """Returns the multiply-accumulates of an operator. Raises ``OperatorError`` for what is no count."""
    where = f"operator {operator.name} of {about}"
    count = asked_of(operator, where, operator.count_macs, Unsupported)
    if type(count) is not int or not 0 <= count < 1 << 63:
        raise _refusing(operator, about)("count_macs", bounded_repr(count), "a count, an int from 0 on")
    return count


def _check_locks(transaction: Transaction, device: Device, refuse: Refuse) -> None:
    """Raises ``OperatorError`` for a lock that stays other than the overlay set it: the next operator would
    find it so. (That a lock ends as it was last set, the simulator says of every run.)"""
    last = _locks_set(transaction)
    initial = _overlay_locks(device) if last else {}
    for (tile, lock), value in last.items():
        wanted = initial.get((tile, lock), 0)
        if value != wanted:
            given = f"lock {lock} of {tile_name(*tile)} set to {value} in the end"
            raise refuse("transaction", given, f"{wanted}, as operators find it")


def _locks_set(transaction: Transaction) -> dict[tuple[tuple[int, int], int], int]:
    """What each lock is set to last."""
    sets = (one for one in effects.events(transaction) if isinstance(one, effects.LockSet))
    return {((one.tile[0], one.tile[1]), one.lock): one.value for one in sets}


@lru_cache(maxsize=16)
def _overlay_locks(device: Device) -> Mapping[tuple[tuple[int, int], int], int]:
    return _locks_set(Transaction.from_bytes(overlay_transaction(device)))


def _refusing(operator: Operator, about: str) -> Refuse:
    def refuse(what: str, given: str, accepted: str) -> OperatorError:
        where = f"operator {operator.name} of {about}, {source_of(type(operator))}: {what}"
        return OperatorError(where, given, accepted, "correct that class")

    return refuse


def _check_outputs(operator: Operator, entries: Sequence[ArgMap], reads: int, refuse: Refuse) -> None:
    """Raises ``OperatorError`` for an output whose bytes are not all in an entry: no run could write them."""
    for number, tensor in enumerate(operator.outputs, reads):
        own = [
            (entry.size, index)
            for index, entry in enumerate(entries)
            if entry.kind is ArgKind.OUTPUT and entry.onnx_arg_idx == number
        ]
        size, index = max(own, default=(0, -1))
        if size >= tensor.device_bytes or OUTPUT - (number - reads) in operator.kept_buffers:
            continue
        accepted = f"at least {counted(tensor.device_bytes, 'byte')}: all of {tensor}"
        if not own:
            raise refuse("arg map", f"no OUTPUT entry with onnx_arg_idx {number}", f"one of {accepted}")
        raise refuse(f"arg map, entry {index} (OUTPUT), size", str(size), accepted)


def _check_activations(operator: Operator, found: Sequence[object], refuse: Refuse) -> None:
    """Raises ``OperatorError`` for activations that are none of the operator's inputs."""
    known = [tensor.name for tensor in operator.inputs]
    for index, tensor in enumerate(found):
        if not isinstance(tensor, TensorSpec) or tensor.name not in known:
            accepted = f"inputs of the operator: {', '.join(known) or 'it has none'}"
            raise refuse(f"activations[{index}]", bounded_repr(tensor), accepted)


def _check_numbers(entry: ArgMap, at: str, refuse: Refuse) -> None:
    for name in ("xrt_arg_idx", "onnx_arg_idx", "offset", "size", "padding_offset"):
        value = getattr(entry, name)
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise refuse(f"{at}, {name}", bounded_repr(value), "a whole number")
    if entry.xrt_arg_idx >= MOST_ARGUMENTS:
        accepted = f"{span(0, MOST_ARGUMENTS - 1)}: DDR_PATCH names an argument in a byte"
        raise refuse(f"{at}, xrt_arg_idx", str(entry.xrt_arg_idx), accepted)
    if entry.kind is ArgKind.CTRL_PKT_BIN:
        accepted = "control packets as a part of super_kernel_params, CONST_KERNEL_PARAM_INPUT"
        raise refuse(at, "a kind that models have no buffer for", accepted)


def _check_bytes(size: int, what: str, refuse: Refuse) -> None:
    if size > limits.BUFFER_BYTES.most:  # where a class stands is looked up for errors alone
        limits.BUFFER_BYTES.check(refuse(what, "", "").where, size)


def _check_scratch(entries: Sequence[ArgMap], refuse: Refuse) -> None:
    """Raises ``OperatorError`` for scratch of two arguments that is the same bytes: an operator has one pad,
    and offsets of entries count from its start."""
    pads = [(i, entry) for i, entry in enumerate(entries) if entry.kind is ArgKind.SCRATCH_PAD and entry.size]
    for (_, a), (i, b) in combinations(pads, 2):
        if a.offset < b.end and b.offset < a.end and a.xrt_arg_idx != b.xrt_arg_idx:
            given = f"bytes {span(b.offset, b.end - 1)}, some of which argument {a.xrt_arg_idx} has, too"
            accepted = f"bytes of its own: an offset from {a.end} on"
            raise refuse(f"arg map, entry {i} (SCRATCH_PAD, argument {b.xrt_arg_idx})", given, accepted)


def _check_constants(operator: Operator, entries: Sequence[ArgMap], about: str, refuse: Refuse) -> None:
    """Raises ``OperatorError`` for an entry of constants beyond those that the operator formats, and for
    constants without an entry."""
    where = f"operator {operator.name} of {about}"
    room = asked_of(operator, where, lambda: operator.const_bytes, Unsupported)
    if isinstance(room, bool) or not isinstance(room, int | np.integer) or room < 0:
        raise refuse("const_bytes", bounded_repr(room), "a number of bytes from 0 on")
    _check_bytes(int(room), "const_bytes", refuse)
    constants = [(i, entry) for i, entry in enumerate(entries) if entry.kind is ArgKind.CONST_INPUT]
    if room and not constants:
        raise refuse("arg map", f"no CONST_INPUT entry, where const_bytes is {room}", "one that has them")
    accepted = f"1 to {room}: const_bytes of the operator" if room else "no such entry: const_bytes is 0"
    for index, entry in constants:
        if not 0 < entry.size <= room:
            raise refuse(f"arg map, entry {index} (CONST_INPUT), size", str(entry.size), accepted)
