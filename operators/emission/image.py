# SPDX-License-Identifier: Apache-2.0
"""Images for program memory: the super kernel, the kernels that it can run, and how long their code is.

Functions that came after the table of a kernel was sealed are linked as kernels are: routines of their own.
Program memory is small (16 KB on AMD's devices), so an image carries what a model needs and no more. Where
that is more than fits, operators are parted into runs with an image each, and the transaction loads the
next one where a run ends (``overlay.reload_transaction``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from onedispatch.operators.declarations import params
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.kernel import FunctionTable, Kernel
from onedispatch.transactions.base.cached import cached_property


class Linked(NamedTuple):
    """A kernel of an image, or a later row of a table: ``table.row``.

    ``types``: a bit for each element type, of its first output or that the function sees.
    """

    digest: int
    types: int
    code_bytes: int  # for each of them
    name: str

    @property
    def bytes(self) -> int:
        return self.code_bytes * self.types.bit_count()

    def __str__(self) -> str:
        names = [row.name for row in DTYPES.values() if self.types >> row.code & 1]
        return f"{self.name} ({', '.join(names)})"


@dataclass(frozen=True)
class Image:
    """The super kernel with the kernels ``linked``, by digest."""

    linked: tuple[Linked, ...] = ()

    @classmethod
    def of(cls, kernel: Kernel, *dtypes: str) -> Image:
        """One kernel for element types of its first output; for all that it has if none is named."""
        names = dtypes or tuple(kernel.outputs[0].dtypes.split())
        types = sum(1 << DTYPES[name].code for name in set(names))
        return cls((Linked(kernel.digest, types, kernel.code_bytes, kernel.name),))

    @classmethod
    def of_function(cls, table: FunctionTable, name: str, dtype: str) -> Image:
        """What a function needs beside the kernel that calls it: nothing where the kernel's code has it.

        ASSUMPTION: all kernels of an image call one copy, which loops over a row of vectors.
        """
        code = table.code(name)
        if not table.is_later(code):
            return EMPTY
        size = table.rows[code].code_bytes
        return cls((Linked(table.digest(code), 1 << DTYPES[dtype].code, size, f"{table.name}.{name}"),))

    def __or__(self, other: Image) -> Image:
        if other.covers(self) or self.covers(other):
            return other if other.covers(self) else self
        known = {one.digest: one for one in self.linked}
        for one in other.linked:
            there = known.get(one.digest)
            known[one.digest] = one if there is None else one._replace(types=one.types | there.types)
        return Image(tuple(known[digest] for digest in sorted(known)))

    def covers(self, other: Image) -> bool:
        """Whether all of ``other`` is in it."""
        types = {one.digest: one.types for one in self.linked}
        return all(one.types & ~types.get(one.digest, 0) == 0 for one in other.linked)

    @property
    def nbytes(self) -> int:
        """What it takes of program memory: head, code, hash."""
        head = params.IMAGE["kernels"] + params.CARRIED_WORDS * len(self.linked) + 1
        return 4 * head + params.SUPER_KERNEL_BYTES + sum(one.bytes for one in self.linked)

    @cached_property
    def words(self) -> tuple[int, ...]:
        head = [params.IMAGE_MAGIC, params.SUPER_KERNEL_ID, params.SUPER_KERNEL_VERSION]
        table = [word for one in self.linked for word in (one.digest, one.types)]
        code = [params.SUPER_KERNEL_ID] * (params.SUPER_KERNEL_BYTES // 4)
        code += [one.digest for one in self.linked for _ in range(one.bytes // 4)]
        words = [*head, self.nbytes // 4, len(self.linked), *table, *code]
        return (*words, image_hash(words))

    def __str__(self) -> str:
        return "; ".join(str(one) for one in self.linked) or "no kernel"


EMPTY = Image()


def names_in(text: str) -> list[str]:
    """The kernels that the text of an image names."""
    return [part.partition(" (")[0] for part in text.split("; ")] if text != str(EMPTY) else []


def merged(images: Iterable[Image]) -> Image:
    """One image with all that ``images`` have."""
    return reduce(Image.__or__, images, EMPTY)


def link(needed: Sequence[Image], limit: int) -> list[Image]:
    """The image to run each operator with, of what they need by themselves; few changes from one to the next.

    Each image serves as many operators in a row as fit into ``limit`` bytes of program memory, which
    gives the fewest images; what the way back to the first one loads is not weighed. What needs more
    than that by itself gets what it needs.
    """
    runs: list[tuple[Image, int]] = []
    for image in needed:
        both = runs[-1][0] | image if runs else image
        if runs and (both.nbytes <= limit or runs[-1][0].covers(image)):
            runs[-1] = (both, runs[-1][1] + 1)
        else:
            runs.append((image, 1))
    return [image for image, count in runs for _ in range(count)]


def image_hash(words: Iterable[int]) -> int:
    """32-bit FNV-1a over the little-endian bytes of ``words``."""
    value = params.HASH_BASIS
    for word in words:
        for byte in int(word).to_bytes(4, "little"):
            value = (value ^ byte) * params.HASH_PRIME & 0xFFFFFFFF
    return value
