# SPDX-License-Identifier: Apache-2.0
"""What functions of kernels and kernel libraries answer: one row per status, its code is fixed for good.

The codes of ``OD_...`` in ``kernel_codes.h`` come from here, and so do the classes of errors: ``input_count``
is ``OD_INPUT_COUNT`` in C and ``KernelInputCountError``, a ``KernelError``, in Python. A code that has no row
is itself an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from onedispatch.transactions.base.errors import KernelError, KernelLibraryError, SimulationError


@dataclass(frozen=True)
class Status:
    """``summary`` completes "the kernel says: "; ``library``: it is said of libraries and declarations."""

    name: str
    code: int
    summary: str
    library: bool = False

    @property
    def error(self) -> str:
        """The name of its class."""
        return "Kernel" + "".join(word.capitalize() for word in self.name.split("_")) + "Error"


# 0 to -3 are those that vendors share; others that they have and that cannot happen here (reducible memory,
# identifiers of shape inference, unchanged graphs) have no row.
STATUSES = (
    Status("ok", 0, "done"),
    Status("not_supported", -1, "nothing that this kernel does"),
    Status("parameter_invalid", -2, "a value that it does not accept"),
    Status("runtime_failure", -3, "the call failed"),
    Status("out_of_memory", -4, "the host has no memory left"),
    Status("abi_version", -5, "another version of the kernel interface", library=True),
    Status("size_mismatch", -6, "structures of other sizes", library=True),
    Status("null_pointer", -7, "a pointer that must not be null", library=True),
    Status("declaration_invalid", -8, "a declaration that cannot stand", library=True),
    Status("name_conflict", -9, "a name or digest that is taken", library=True),
    Status("not_found", -10, "no such kernel", library=True),
    Status("buffer_too_small", -11, "room for fewer than there are"),
    Status("dtype", -12, "element types that do not go together"),
    Status("layout", -13, "chunks that lie in a way that it does not walk"),
    Status("aux_buffer_too_small", -14, "an auxiliary tensor that needs more room"),
    Status("program_buffer_too_small", -15, "a program that needs more room"),
    Status("input_count", -16, "another number of inputs"),
    Status("output_count", -17, "another number of outputs"),
    Status("input_size", -18, "an input of a shape that does not fit"),
    Status("output_size", -19, "an output of a shape that does not fit"),
    Status("layer_configuration", -20, "attributes that it does not take together"),
    Status("quantisation", -21, "another quantisation"),
    Status("broadcast", -22, "shapes that do not broadcast"),
    Status("non_static_input", -23, "an input whose value must be a constant of the model"),
    Status("scalar_argument", -24, "a scalar that it does not accept"),
    Status("low_fastest_dim", -25, "a last dimension that is too short"),
    Status("rank", -26, "a tensor with another number of dimensions"),
    Status("missing_parameters", -27, "no value for a parameter that has no default"),
    Status("dynamic_shape", -28, "a shape that is not known when the node is compiled"),
    Status("tensor_too_large", -29, "a tensor that is too large"),
    Status("access", -30, "a read or write outside of what the kernel declares"),
    Status("timeout", -31, "it did not end in time"),
    Status("failure", -32, "it failed and says nothing more"),
    Status("crash", -33, "it crashed"),
    Status("index", -34, "an index outside of the axis that it counts along"),
)
OK = STATUSES[0].code
CODES: Mapping[str, int] = {row.name: row.code for row in STATUSES}


def _classes() -> dict[int, type[KernelError]]:
    return {
        row.code: type(
            row.error,
            (KernelLibraryError if row.library else KernelError,),
            {"__doc__": f"Status {row.code}: {row.summary}.", "__module__": __name__, "status": row.code},
        )
        for row in STATUSES
        if row.code != OK
    }


ERRORS: Mapping[int, type[KernelError]] = _classes()
globals().update({cls.__name__: cls for cls in ERRORS.values()})
if TYPE_CHECKING:

    def __getattr__(name: str) -> type[KernelError]: ...


def error_class(status: int) -> type[KernelError]:
    """The class that stands for ``status``; ``KernelError`` itself for a code without a row."""
    return ERRORS.get(status, KernelError)


@cache
def run_error_class(status: int) -> type[KernelError]:
    """The same for what a kernel answers while a transaction runs: a ``SimulationError`` as well, which
    knows tile and operation."""
    cls = error_class(status)
    here = {"__doc__": cls.__doc__, "__module__": __name__, "__reduce__": _reduced}
    return type(cls.__name__, (cls, SimulationError), here)


def _reduced(error: KernelError) -> tuple[Any, ...]:
    return (_run_error, (type(error).status, error.args, error.__dict__))


def _run_error(status: int, args: tuple[str, ...], state: dict[str, Any]) -> KernelError:
    cls = run_error_class(status)
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error
