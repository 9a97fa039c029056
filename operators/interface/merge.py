# SPDX-License-Identifier: Apache-2.0
"""How an operator takes in its only reader: merges, as data that has names and conditions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onedispatch.operators.declarations.tensor import TensorSpec, Unsupported


@dataclass(frozen=True)
class Merge:
    """One way in which a producer takes in its reader; reasons call it ``<kind of the producer>_<name>``.

    ``concerns(producer, reader)`` says whether it is about the two; ``make`` gives the operator that both
    become, which writes what the reader wrote and may take more inputs. It raises ``Unsupported`` with the
    condition that failed. The caller checks that the value between them has no other reader; where it has,
    ``keep`` gives the operator that writes it too, if there is one.
    """

    name: str
    concerns: Callable[[Any, Any], bool]
    make: Callable[[Any, Any], Any]
    keep: Callable[[Any, Any], Any] | None = None


def _applies(producer: Any, reader: Any) -> bool:
    return bool(producer.applies_activation and reader.is_activation)


def refuse_applied(producer: Any, accepted: str) -> None:
    """Raises ``Unsupported`` where ``producer`` applies a function to its results already."""
    given = producer.activation.code
    if given != "none":
        raise Unsupported(f"{given} is applied to the result of {producer.kind} already", accepted)


def _with_activation(producer: Any, reader: Any) -> Any:
    refuse_applied(producer, "one function")
    if not producer.takes_activation:
        raise Unsupported(f"results of {producer.output.dtype}", "floats")
    made = producer.replaced(output=reader.output, activation=reader.activation)
    if not made.applies_activation:
        raise Unsupported(
            f"{producer.kind} computes {reader.activation.code} nowhere", "kernels that apply it"
        )
    return made


# A function of every element, applied while the kernel still holds its result.
ACTIVATION = Merge("activation", _applies, _with_activation)


def _summed(producer: Any, reader: Any) -> bool:
    return bool(reader.adds_residual and producer.summands and reader.inputs[0].name == producer.output.name)


def _with_residual(producer: Any, reader: Any, total: TensorSpec | None = None) -> Any:
    given = producer.activation.code
    if given != "none":
        raise Unsupported(f"{given} is applied to the sum first", "none before it")
    x, residual = producer.summands
    if {x.shape, residual.shape} != {producer.output.shape}:
        raise Unsupported(f"a sum of {x} and {residual}", "two of one shape")
    return reader.with_residual(x, residual, total)


def _with_total(producer: Any, reader: Any) -> Any:
    return _with_residual(producer, reader, producer.output)


# A sum whose reader adds up while it holds both.
RESIDUAL = Merge("residual", _summed, _with_residual, _with_total)
