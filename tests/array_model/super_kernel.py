# SPDX-License-Identifier: Apache-2.0
"""The super kernel: the program that every core runs, as a coroutine.

It waits for a parameter block, runs the loop that the block describes, gives the block back,
and starts again. The block's words are those of ``operators/declarations/params.py``. Per outer tile:
acquire an out slot (where sums wait in scratch: for the last step); for every reduction step acquire the
inputs as their cadence says, call the kernel, release; then release the out slot. Slots of a port are
used in turn, from 0 for each op.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onedispatch.operators.declarations import params
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.kernel import MARK_SHIFT, Kernel
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.transactions.machine.registers import CORE_VIEW_MEMORY
from tests.array_model.array import Core, Program
from tests.array_model.kernels import KERNELS, Call, check_all_read
from tests.array_model.memory import UNMODELLED, ModelFault
from tests.array_model.sender import Steps

Carried = Mapping[int, tuple[Kernel | None, int]]
"""By digest: the kernels that an image has code for (None: it is a function's) and the element types."""
Runs = Callable[[Call], None]
Own = Sequence[tuple[Kernel, Runs]]
LATER = {
    scalar.table.digest(code): row
    for kernel in all_kernels()
    for scalar in kernel.scalars
    if scalar.table is not None
    for code, row in enumerate(scalar.table.rows)
    if scalar.table.is_later(code)
}
DECLARED = {kernel.digest: kernel for kernel in all_kernels()}
PARAMS_EMPTY, PARAMS_FULL = (params.LOCK_BASE + lock for lock in params.PARAM_LOCKS)


def load_program(image: Sequence[int], own: Own | None = None) -> Program:
    """The program that an image names: magic, id, version, words in all, kernels, code, FNV-1a hash.

    ``own``: kernels of a test, beside the package's.

    Of each kernel its digest and a bit for each element type of its first output that code is there for:
    so many times its code size, behind the super kernel's own.
    """
    declared = DECLARED | {kernel.digest: kernel for kernel, _ in own or ()}
    first, total = params.IMAGE["kernels"], int(image[params.IMAGE["words"]])
    if tuple(image[:3]) != (params.IMAGE_MAGIC, params.SUPER_KERNEL_ID, params.SUPER_KERNEL_VERSION):
        raise ModelFault("core", f"no such program: {[hex(w) for w in image[:first]]}")
    if not first < total <= len(image) or image[total - 1] != fnv(image[: total - 1]):
        raise ModelFault("core", f"an image of {total} words with another hash, or too long")
    end = first + params.CARRIED_WORDS * int(image[params.IMAGE["count"]])
    code, carried = params.SUPER_KERNEL_BYTES, {}
    for digest, types in zip(image[first:end:2], image[first + 1 : end : 2], strict=False):
        kernel = declared.get(int(digest))
        function = LATER.get(int(digest))
        if function is not None and digest not in carried:
            code += function.code_bytes * int(types).bit_count()
            carried[int(digest)] = (None, int(types))
            continue
        if kernel is None or digest in carried:
            raise ModelFault("core", f"an image with kernel {digest:#x}, which is unknown or there twice")
        if not types or types & ~sum(1 << DTYPES[n].code for n in kernel.outputs[0].dtypes.split()):
            raise ModelFault("core", f"an image with {kernel.name} for element types {types:#x}")
        code += kernel.code_bytes * int(types).bit_count()
        carried[int(digest)] = (kernel, int(types))
    if total != end + code // 4 + 1:
        raise ModelFault("core", f"an image of {total} words that lacks code, or has more than its own")
    run = {**KERNELS, **{kernel.digest: function for kernel, function in own or ()}}
    return lambda core: super_kernel(core, carried, run)


def fnv(words: Sequence[int]) -> int:
    """32-bit FNV-1a over the bytes."""
    digest = 0x811C9DC5
    for word in words:
        for byte in int(word).to_bytes(4, "little"):
            digest = (digest ^ byte) * 0x01000193 % 2**32
    return digest


@dataclass
class Port:
    """A ring of slots in data memory, with the locks that say which are empty and full."""

    address: int
    slot_bytes: int
    depth: int
    acquire: int
    release: int
    cadence: int
    chunk_bytes: int
    slot: int = 0
    held: bool = False

    @classmethod
    def from_words(cls, words: Sequence[int]) -> Port:
        config = words[2]
        return cls(
            words[0] - CORE_VIEW_MEMORY,
            words[1],
            config & 0xFF,
            config >> 8 & 0xFF,
            config >> 16 & 0xFF,
            config >> 24,
            words[3],
        )

    @property
    def at(self) -> int:
        """Byte offset of the present slot in own data memory."""
        return self.address + self.slot * self.slot_bytes

    @property
    def end(self) -> int:
        """Byte behind the last slot."""
        return self.address + (self.depth - 1) * self.slot_bytes + self.chunk_bytes

    def take(self, core: Core) -> Steps:
        if self.cadence != params.CADENCE_NONE and not self.held:
            yield from core.acquire(self.acquire)
            self.held = True

    def give(self, core: Core) -> Steps:
        if self.held:
            yield from core.release(self.release)
            self.held = False
            self.slot = (self.slot + 1) % self.depth


def super_kernel(core: Core, carried: Carried, run: Mapping[int, Runs]) -> Steps:
    while True:
        yield from core.acquire(PARAMS_FULL)
        words = [int(w) for w in core.memory.block(0, params.WORDS, np.uint32)]
        if words[params.HEADER["magic"]] != params.MAGIC:
            raise ModelFault("core", f"{core.name}: parameter block magic {words[0]:#x}")
        kernel, types = carried.get(words[params.HEADER["kernel"]], (None, 0))
        if kernel is None:
            raise ModelFault("core", f"{core.name}: the image does not carry {words[1]:#x}")
        words = [int(w) for w in core.memory.block(0, kernel.block_words, np.uint32)]
        if words[params.HEADER["row_mask"]] >> core.row & 1:
            dtype = words[kernel.layout[kernel.outputs[0].name]] >> params.DTYPE_SHIFT & 0xFF
            if not types >> dtype & 1:
                raise ModelFault("core", f"{core.name}: no code of {kernel.name} for element type {dtype}")
            check_functions(core, kernel, words, carried)
            yield from run_op(core, words, kernel, run.get(kernel.digest))
        yield from core.release(PARAMS_EMPTY)


def check_functions(core: Core, kernel: Kernel, words: Sequence[int], carried: Carried) -> None:
    """The image carries what the block's functions are called by, for what they see."""
    for scalar in kernel.scalars:
        word = words[kernel.layout[scalar.name]]
        if scalar.table is None or not word >> MARK_SHIFT:
            continue
        digest = scalar.table.digest(word & (1 << MARK_SHIFT) - 1)
        dtype = words[kernel.layout[kernel.seen_by(scalar).name]] >> params.DTYPE_SHIFT & 0xFF
        if not carried.get(digest, (None, 0))[1] >> dtype & 1:
            raise ModelFault("core", f"{core.name}: no code of function {digest:#x} for element type {dtype}")


def run_op(core: Core, words: list[int], declared: Kernel, kernel: Runs | None) -> Steps:
    """One operation: all tiles of this core, all reduction steps of each."""
    head = params.HEADER
    in0, in1, out = (Port.from_words(words[head[f"port_{p}"] :]) for p in ("in0", "in1", "out"))
    for port in (in0, in1, out):
        if port.cadence != params.CADENCE_NONE and port.end > core.room:
            raise ModelFault("core", f"{core.name}: a buffer that ends at {port.end:#x}, in its stack")
    if kernel is None:
        raise ModelFault(UNMODELLED, f"{core.name}: kernel {declared.name} is not modelled")
    steps, read = words[head["inner_steps"]], set[str]()
    for origins in tile_origins(core, words):
        for k in range(steps):
            last = k == steps - 1
            if last or out.cadence != params.CADENCE_LAST:
                yield from out.take(core)
            yield from in0.take(core)
            yield from in1.take(core)
            first = k * words[head["k_tile"]]
            count = min(words[head["k_tile"]], words[head["k_extent"]] - first)
            slots = (in0.at, in1.at)
            kernel(Call(core.memory, words, slots, out.at, origins, first, count, k == 0, last, read))
            yield True
            for port in (in0, in1):
                if port.cadence == params.CADENCE_STEP or (last and port.cadence == params.CADENCE_TILE):
                    yield from port.give(core)
        if out.cadence != params.CADENCE_ONCE:
            yield from out.give(core)
    check_all_read(declared, words, read)
    for port in (in0, in1, out):
        yield from port.give(core)


def tile_origins(core: Core, words: list[int]) -> Iterator[tuple[int, ...]]:
    """Origins of the tiles that this core visits.

    The loop order names a dimension per nibble, the outermost loop in the lowest one. A tile
    that would overhang is shifted back: edge work is done twice, nothing is cut.
    """
    per_dim: list[list[int]] = []
    for d in range(5):
        extent, tile, factors, count = words[params.HEADER["dims"] + 4 * d :][:4]
        per_column, per_row, per_step = factors & 0xFFFF, factors >> 16 & 0xF, factors >> 20
        origins = []
        for o in range(count):
            index = core.column * per_column + core.row * per_row + o * per_step
            index = min(index, -(-extent // tile) - 1)
            origins.append(min(index * tile, extent - tile))
        per_dim.append(origins)
    order = [words[params.HEADER["loop_order"]] >> 4 * level & 0xF for level in range(5)]
    if sorted(order) != list(range(5)):
        raise ModelFault("core", f"{core.name}: loop order {order}")
    for origins_in_order in itertools.product(*(per_dim[d] for d in order)):
        by_dim = dict(zip(order, origins_in_order, strict=True))
        yield tuple(by_dim[d] for d in range(5))
