# SPDX-License-Identifier: Apache-2.0
"""The arg map of an operator, checked against its tensors: operators of plug-ins write their own."""

from __future__ import annotations

from onedispatch.operators.interface.operator import Operator, Unsupported
from onedispatch.transactions import ArgKind, ArgMap
from onedispatch.transactions.base.boundary import attributed_to, source_of
from onedispatch.transactions.base.errors import OperatorError, TransactionError
from onedispatch.transactions.base.text import span


def checked_arg_map(operator: Operator, about: str) -> list[ArgMap]:
    """The operator's arg map. Raises ``OperatorError`` for entries that name none of its tensors.

    ``about`` names the nodes that the operator computes.
    """

    def refuse(what: str, given: str, accepted: str) -> OperatorError:
        where = f"operator {operator.name} of {about}, {source_of(type(operator))}: {what}"
        return OperatorError(where, given, accepted, "correct arg_map() of that class")

    try:
        with attributed_to(type(operator), f"operator {operator.name} of {about}", Unsupported):
            given, reads = operator.arg_map(), len(operator.activations)
    except TransactionError as error:  # of an entry that cannot be
        raise refuse(error.where, error.given, error.accepted) from error
    if not isinstance(given, list | tuple):
        raise refuse("arg map", repr(given), "a list of ArgMap")
    tensors = {
        ArgKind.INPUT: range(reads),
        ArgKind.OUTPUT: range(reads, reads + len(operator.outputs)),
    }
    for index, entry in enumerate(given):
        at = f"arg map, entry {index}"
        if not isinstance(entry, ArgMap):
            raise refuse(at, repr(entry), "an ArgMap")
        if not isinstance(entry.kind, ArgKind):
            raise refuse(f"{at}, kind", repr(entry.kind), f"an ArgKind: {', '.join(ArgKind.__members__)}")
        known = tensors.get(entry.kind)
        if known is not None and entry.onnx_arg_idx not in known:
            accepted = f"{span(known.start, known.stop - 1)}: inputs count from 0, outputs behind them"
            what = f"{at} ({entry.kind.name}, argument {entry.xrt_arg_idx}), onnx_arg_idx"
            raise refuse(what, str(entry.onnx_arg_idx), accepted)
    return list(given)
