# SPDX-License-Identifier: Apache-2.0
"""The operands of a custom kernel as its author writes them: objects, or short forms in text.

They are the ``Tensor`` objects of ``declarations/kernel.py``, with the arguments that authors have a use for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onedispatch.operators.declarations.kernel import MAX_DIMS, Scalar, Tensor
from onedispatch.operators.plugin.refusals import refusal

Ranks = int | tuple[int, int]


class In(Tensor):
    """An input. ``dtypes``: one or more of ``DTYPES``, with spaces or ``|`` between; where it says nothing,
    those of the operand that it is ``like``, or f32. ``rank``: one, or (least, largest). ``pad``: what is
    read outside of the tensor (0). ``like``: an operand that must have the same dtype. ``quantised``: True
    where the tensor must have scale and zero point, False where it must not, None where all is well."""

    def __init__(
        self,
        name: str,
        dtypes: str = "",
        rank: Ranks = (0, MAX_DIMS),
        pad: float | None = None,
        optional: bool = False,
        like: str = "",
        quantised: bool | None = None,
    ) -> None:
        facts: dict[str, Any] = {"rank": _least_and_largest(rank), "pad": pad, "quantised": quantised}
        super().__init__(name, "", _each_once(dtypes), optional, "interval", like, **facts)


class Out(Tensor):
    """An output: as ``In``. ``fill``: what elements hold that no member writes; without one every element of
    the tensor must be some member's."""

    def __init__(
        self,
        name: str,
        dtypes: str = "",
        rank: Ranks = (0, MAX_DIMS),
        fill: float | None = None,
        like: str = "",
        quantised: bool | None = None,
    ) -> None:
        facts: dict[str, Any] = {"rank": _least_and_largest(rank), "fill": fill, "quantised": quantised}
        super().__init__(name, "", _each_once(dtypes), False, "interval", like, **facts)


class _OneType(Tensor):
    """Memory of one element type."""

    @property
    def dtype(self) -> str:
        return self.dtypes


class Aux(_OneType):
    """A constant tensor of the kernel's own (a table, reciprocals); each instance gives its values."""

    def __init__(self, name: str, dtype: str = "f32") -> None:
        super().__init__(name, "", dtype, walk="interval", rank=(0, MAX_DIMS))


class Scratch(_OneType):
    """Memory of the core that a call may use as it likes; each instance says how much."""

    def __init__(self, name: str, dtype: str = "f32") -> None:
        super().__init__(name, "", dtype, walk="interval")


def _least_and_largest(rank: Ranks) -> Any:
    return rank if isinstance(rank, tuple) else (rank, rank)


def _each_once(dtypes: str) -> str:
    """Element types with spaces between; other values stay as they are, for the kernel to refuse."""
    return " ".join(dict.fromkeys(dtypes.replace("|", " ").split())) if isinstance(dtypes, str) else dtypes


# -- short forms ---------------------------------------------------------------------------------


def operands(
    kind: type[In] | type[Out], given: Any, first: In | None = None, dtypes: str = ""
) -> tuple[Any, ...]:
    """Operands as they may be written: ``"x y"``, ``"x:f32|bf16 y z?"``, or a list of ``In`` or ``Out``.

    In text, ``:`` names dtypes and ``?`` an operand that may be absent. One without dtypes has those of the
    first input (``first``, of ``outputs``), and must have the same one; the first has ``dtypes``, or f32.
    """
    if isinstance(given, In | Out):
        given = [given]
    if not isinstance(given, str):
        found = tuple(given) if isinstance(given, Sequence) else (given,)
        wrong = [one for one in found if not isinstance(one, kind)]
        if wrong:
            accepted = f"text such as 'x y', or od.{kind.__name__} objects"
            raise refusal("declaration_invalid", f"{kind.__name__} operands", repr(wrong[0]), accepted)
        return found
    found = ()
    for token in given.replace(",", " ").split():
        name, _, said = token.partition(":")
        optional = token.endswith("?")
        name, said = name.rstrip("?"), said.rstrip("?") or ("" if first else dtypes)
        more = {"optional": True} if optional and kind is In else {}
        if optional and kind is Out:
            raise refusal("declaration_invalid", "outputs", token, "outputs without '?': all are always made")
        one = kind(name, said, like="" if said or first is None else first.name, **more)
        first = first or (one if isinstance(one, In) else None)
        found = (*found, one)
    return found


def scalars(given: Any) -> tuple[Scalar, ...]:
    """Scalars as they may be written: a list of ``od.Scalar``, or types by name, with a default or not:
    ``{"a": "f32", "n": ("u32", 1), "m": od.Scalar("m", "i32", low=0)}``."""
    if not isinstance(given, Mapping):
        return tuple(given) if isinstance(given, Sequence) else (given,)
    found = []
    for name, said in given.items():
        if isinstance(said, Scalar):
            found.append(said)
        elif isinstance(said, str):
            found.append(Scalar(name, said))  # type: ignore[arg-type]
        elif isinstance(said, tuple) and 1 <= len(said) <= 2:
            found.append(Scalar(name, said[0], default=said[1] if len(said) > 1 else None))
        else:
            accepted = 'a type ("f32"), a type and a default (("f32", 1.0)), or od.Scalar'
            raise refusal("declaration_invalid", f"scalar {name}", repr(said), accepted)
    return tuple(found)


def typed_names(kind: type[Aux] | type[Scratch], given: Any) -> tuple[Any, ...]:
    """Auxiliary tensors or scratch as they may be written: ``"table recip:bf16"``, or a list of objects."""
    if not isinstance(given, str):
        return tuple(given) if isinstance(given, Sequence) else (given,)
    parts = (token.partition(":") for token in given.replace(",", " ").split())
    return tuple(kind(name, dtype or "f32") for name, _, dtype in parts)
