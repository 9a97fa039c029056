# SPDX-License-Identifier: Apache-2.0
"""The const buffer of a device step: what operators format, and constants that are read as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from onedispatch.dispatch.base.lendable import lendable
from onedispatch.dispatch.compiler import memory
from onedispatch.dispatch.compiler.executable import ConstantCopy, CopiedPart, DeviceStep
from onedispatch.dispatch.compiler.origins import Origins
from onedispatch.dispatch.frontend.graph import Array
from onedispatch.operators.declarations.tensor import TensorSpec
from onedispatch.operators.scheduling.packing import PackedCopy, whole_copy

_END = 64  # bytes


@dataclass(frozen=True)
class Content:
    """``size`` bytes that are to be in the buffer.

    ``copies`` put them into zeroed memory, of what is ``read`` among others; where there are none, as of
    operators that format their own, ``write`` does.
    """

    size: int
    write: Callable[[Array], object]
    copies: Sequence[PackedCopy] | None
    read: Iterable[TensorSpec] = ()

    def put(self, out: Array) -> None:
        """Writes the bytes."""
        for each in self.copies or ():
            each.run(out)
        if not self.copies:
            self.write(out)


@dataclass(frozen=True, eq=False)
class _Earlier:
    """A step that was made before: its buffer, and what it copied there, by where that begins."""

    const: Array
    parts: dict[int, CopiedPart]

    @classmethod
    def of(cls, step: DeviceStep) -> _Earlier:
        return cls(step.const, {part.at: part for part in step.parts})


class ConstBuffer:
    """Equal content is stored once: in this buffer, and in those of ``earlier`` steps.

    Steps of one model for other shapes have the same weights as a rule. As long as one of them has what this
    one gets, where this one gets it, nothing is written; if it is so to the end, the memory is theirs. What
    constants of the graph are copied to is compared by the copies, the rest byte by byte.
    """

    def __init__(self, origins: Origins, earlier: Sequence[DeviceStep] = ()) -> None:
        self._origins = origins
        self._alike = [_Earlier.of(step) for step in earlier if step.const.size]
        self._room = 0
        self._buffer = np.zeros(0, np.uint8)
        self._known: dict[tuple[int, bytes], list[int]] = {}  # size and ends -> offsets
        self.copies: list[ConstantCopy] = []
        self.parts: list[CopiedPart] = []
        self.starts: list[int] = []
        self.size = 0

    def reserve(self, size: int) -> None:
        """Makes room for so many bytes."""
        self._room = size
        if not self._alike:
            self._buffer = lendable(size)  # pages that stay unused cost nothing

    def add(self, spec: TensorSpec) -> int:
        """Byte offset of a constant's device image in the buffer."""
        value, size = spec.value, spec.device_bytes

        def write(out: Array) -> None:
            out[:] = device_image(spec)

        copies = [] if value is None or value.nbytes != size else [whole_copy(value)]
        return self.fill(Content(size, write, copies))

    def has_original(self, spec: TensorSpec) -> bool:
        """Whether the tensor is a constant of the graph, which other shapes have, too."""
        copies = [] if spec.value is None else [whole_copy(spec.value)]
        return any(one.constant for one in self._origins.named(copies, ()))

    def fill(self, content: Content) -> int:
        """Byte offset of ``content``."""
        at, copies = self.size, content.copies or ()
        moved = (each.moved(at) for each in copies)
        named = list(self._origins.named(moved, content.read))
        part = CopiedPart(at, content.size, tuple(named)) if copies and len(named) == len(copies) else None
        if self._alike:
            place = self._found(content, part)
        else:
            content.put(self._buffer[at : at + content.size])
            place = self._taken(self._buffer, at, content.size)
            if place != at:
                self._buffer[at : at + content.size] = 0
        if place == at:
            self.copies += named
            self.parts += [] if part is None else [part]
            self.starts += [at] if at else []
            self.size = memory.aligned(at + content.size)
        return place

    def image(self) -> Array:
        """The bytes of the buffer."""
        if self._alike and self._alike[0].const.nbytes == self.size:
            return self._alike[0].const
        if self._alike:
            self._leave()
        image = self._buffer[: self.size]
        image.flags.writeable = False
        return image

    def _found(self, content: Content, part: CopiedPart | None) -> int:
        """Where the content lies: in earlier steps, of which those stay that have it there too."""
        at, size = self.size, content.size
        alike = [step for step in self._alike if part is not None and part.is_like(step.parts.get(at))]
        if alike:
            self._alike = alike
            return self._taken(alike[0].const, at, size)
        written = np.zeros(size, np.uint8)
        content.put(written)
        place = self._taken(self._alike[0].const, at, size, written)
        if place != at:
            return place
        alike = [step for step in self._alike if np.array_equal(step.const[at : at + size], written)]
        if not alike:
            self._leave()
            self._buffer[at : at + size] = written
        self._alike = alike
        return at

    def _leave(self) -> None:
        """Goes on in memory of its own."""
        self._buffer = lendable(self._room)
        self._buffer[: self.size] = self._alike[0].const[: self.size]
        self._alike = []

    def _taken(self, buffer: Array, at: int, size: int, written: Array | None = None) -> int:
        """Where the same bytes are already in ``buffer``, else ``at``, where they are known from now on."""
        blob = buffer[at : at + size] if written is None else written
        alike = self._known.setdefault((size, _ends(blob)), [])
        for known in alike:
            if np.array_equal(_words(buffer[known : known + size]), _words(blob)):
                return known
        alike.append(at)
        return at


def _words(blob: Array) -> Array:
    """The bytes as words where they are some, which are faster to go through."""
    return blob.view(np.uint64) if blob.size % 8 == 0 else blob


def _ends(blob: Array) -> bytes:
    """What equal bytes share, and few others."""
    return blob[:_END].tobytes() + blob[-_END:].tobytes()


def device_image(spec: TensorSpec) -> Array:
    """A constant's bytes as they lie in device memory, rows padded to whole words."""
    assert spec.value is not None
    return spec.laid(spec.value).view(np.uint8)
