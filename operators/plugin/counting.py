# SPDX-License-Identifier: Apache-2.0
"""The work of a Python body that declares none: its NumPy operations, counted on one small call.

The body runs once, when an instance is made, on ones in the place of its inputs. Arrays that carry a tally
count what NumPy does with them. What NumPy cannot see (elements taken out as Python numbers, functions that
are not listed here) cannot be counted: then the work is assumed, and reports say so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onedispatch.operators.declarations.dtypes import DTYPES, DType, dtype_of
from onedispatch.operators.plugin.watchdog import watched
from onedispatch.transactions import Device
from onedispatch.transactions.base.handlers import reraise_from_handler
from onedispatch.transactions.machine.device import vocabulary

Array = np.ndarray[Any, Any]

# NumPy's functions by what one element of the result takes. ASSUMPTION: a power is a logarithm, a product and
# an exponential; hyperbolic functions are an exponential and a quotient; inverse ones are like atan.
_TERMS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("multiply", "square"), ("mul",)),
    **dict.fromkeys(("divide", "floor_divide", "remainder", "fmod", "reciprocal", "divmod"), ("div",)),
    **dict.fromkeys(("exp", "exp2", "expm1"), ("exp",)),
    **dict.fromkeys(("log", "log2", "log10", "log1p"), ("log",)),
    **dict.fromkeys(("sqrt", "cbrt"), ("sqrt",)),
    **dict.fromkeys(("sin", "cos"), ("sin",)),
    **dict.fromkeys(("arctan", "arctan2", "arcsin", "arccos"), ("atan",)),
    **dict.fromkeys(("sinh", "cosh", "arcsinh", "arccosh", "arctanh"), ("exp", "div")),
    **dict.fromkeys(("power", "float_power"), ("log", "mul", "exp")),
    **dict.fromkeys(("matmul", "vecdot", "matvec", "vecmat"), ("mul",)),
    **dict.fromkeys(
        ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "maximum", "minimum"),
        ("compare",),
    ),
    "tan": ("tan",),
    "tanh": ("tanh",),
    "erf": ("erf",),
    "hypot": ("mul", "mul", "op", "sqrt"),
    **dict.fromkeys(
        "add subtract negative positive absolute fabs sign rint floor ceil trunc copysign signbit isnan "
        "isinf isfinite logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor "
        "invert left_shift right_shift fmax fmin spacing nextafter ldexp".split(),
        ("op",),
    ),
}
# NumPy's functions that are no ufuncs, by what an element of the result takes.
_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("where", "clip", "round", "around", "nan_to_num"), ("op",)),
    **dict.fromkeys(
        "concatenate stack vstack hstack take take_along_axis repeat tile pad flip roll copyto copy".split(),
        ("move",),
    ),
    **dict.fromkeys(
        "reshape transpose expand_dims squeeze broadcast_to swapaxes moveaxis ravel atleast_1d atleast_2d "
        "zeros_like ones_like full_like empty_like shape ndim size result_type can_cast iscomplexobj".split(),
        (),
    ),
}
_REDUCED = frozenset("sum prod mean var std max min amax amin any all cumsum cumprod argmax argmin".split())


class Uncountable(Exception):
    """The body did something that NumPy's operations do not show."""


class Tally:
    """Element operations by term and element type."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, terms: tuple[str, ...], elements: int, dtype: np.dtype[Any]) -> None:
        for term in terms:
            self.counts[term, _row(dtype).name] += elements

    def cycles(self, device: Device) -> float:
        """What all of them take on a core, vectors full."""
        return sum(n * _price(term, DTYPES[name], device) for (term, name), n in self.counts.items())


def _row(dtype: np.dtype[Any]) -> DType:
    """The element type that a core would compute in. ASSUMPTION: one of 32 bits where it has none so wide."""
    return dtype_of(dtype) or DTYPES["f32" if dtype.kind == "f" else "i32"]


def _price(term: str, row: DType, device: Device) -> float:
    """Cycles of an element operation; of a type without such an operation, those of float32."""
    known = f"kernel.{row.rates}_{term}_cycles" in vocabulary()
    rates = row.rates if known else "f32"
    return device.constant(f"kernel.{rates}_{term}_cycles") / device.constant(f"kernel.{rates}_lanes")


class Counted(np.ndarray[Any, Any]):
    """An array with operations that its tally counts."""

    tally: Tally | None = None

    def __array_finalize__(self, source: Any) -> None:
        self.tally = getattr(source, "tally", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        tally = next(one.tally for one in (*inputs, *options.get("out", ())) if isinstance(one, Counted))
        assert tally is not None
        plain = [_plain(one) for one in inputs]
        if "out" in options:
            options["out"] = tuple(_plain(one) for one in options["out"])
        made = getattr(ufunc, method)(*plain, **options)
        terms = _TERMS.get(ufunc.__name__)
        if terms is None or method == "at":
            raise Uncountable(ufunc.__name__)
        first = made[0] if isinstance(made, tuple) else made
        if first is not None:
            computed = np.result_type(*(one for one in plain if one is not None))
            tally.add(terms, _elements(ufunc, method, plain, first), computed)
        if isinstance(made, tuple):
            return tuple(carrying(one, tally) for one in made)
        return carrying(made, tally)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name = func.__name__
        if name in _REDUCED:  # they come back as ufuncs
            return super().__array_function__(func, types, args, kwargs)
        if name not in _FUNCTIONS:
            raise Uncountable(name)
        made = super().__array_function__(func, types, args, kwargs)
        if self.tally is not None and isinstance(made, np.ndarray):
            self.tally.add(_FUNCTIONS[name], made.size, made.dtype)
            return carrying(made, self.tally)
        return made

    def __getitem__(self, at: Any) -> Any:
        """A part that counts too, one element included."""
        part = super().__getitem__(at)
        return part if isinstance(part, Counted) or self.tally is None else carrying(part, self.tally)

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Any:
        made = super().astype(dtype, *args, **options)
        if self.tally is not None:
            self.tally.add(("op",), made.size, made.dtype)
        return made

    def _escapes(self, *_: Any, **__: Any) -> Any:
        raise Uncountable("an element as a Python number, or a method that NumPy computes by itself")

    __bool__ = __float__ = __int__ = __index__ = __iter__ = _escapes
    item = tolist = tobytes = dot = sort = argsort = partition = argpartition = searchsorted = _escapes
    take = choose = compress = trace = nonzero = __array__ = _escapes


def carrying(values: Any, tally: Tally) -> Any:
    """``values`` as an array that counts."""
    array = np.asarray(values).view(Counted)
    array.tally = tally
    return array


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Counted) else value


def _elements(ufunc: Any, method: str, inputs: list[Any], made: Any) -> int:
    """Element operations of one call: those of the result; of reductions and products, of what they read."""
    if method in ("reduce", "accumulate", "reduceat"):
        return int(np.size(inputs[0]))
    if ufunc.signature is not None:  # products: the dimension that is summed is the first operand's last
        return int(np.size(made)) * int(np.shape(inputs[0])[-1])
    return int(np.size(made))


BOX = 16  # members that the body is counted on, of each index dimension from the last one on: 256 in all
_MOST = 256
_SECONDS = 2.0  # that counting may take


def box_of(index_space: tuple[int, ...]) -> tuple[int, ...]:
    """How many members along each index dimension the body is counted on."""
    counts, left = [], _MOST
    for size in reversed(index_space):
        counts.append(max(1, min(size, BOX, left)))
        left //= counts[-1]
    return tuple(reversed(counts))


def counted_work(call: Callable[[Callable[[Array], Array]], int], out: DType, device: Device) -> float | None:
    """Element operations per member, in those of the output's type; None where they cannot be counted.

    Args:
        call: runs the body on a few members, its inputs passed through the function that it is given, and
            returns how many members there were.
        out: the element type of the first output, whose operations are the unit.
    """
    tally = Tally()
    try:
        members: int = watched(
            call, _SECONDS, lambda array: carrying(np.ones(array.shape, array.dtype), tally)
        )
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a body raises on ones: its work is not known
        reraise_from_handler(error)
        return None
    return math.fsum([tally.cycles(device)]) / members / _price("op", out, device)
