# SPDX-License-Identifier: Apache-2.0
"""Memory: 32-bit words, each of which has been written or has not.

Reading a word that was not written is an error, not a zero: a transaction that does so has
its synchronisation or its addresses wrong. Addresses inside the array are word offsets in one
tile's memory. The host's memory is a list of buffers, the kernel's arguments in order; each
has a byte address of its own, and the shim sees all of them behind the DDR aperture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from onedispatch.transactions.format.spec import DDR_APERTURE

FIRST_BUFFER_ADDRESS = 0x10000
BUFFER_GAP = 0x1000
"""Bytes between two buffers that belong to neither, so that an overrun is seen."""


UNMODELLED = "unmodelled"
"""The kind of what the model lacks: no fault of a transaction, and no outcome of the simulator."""


class ModelFault(Exception):
    """The transaction did something that the array cannot do; ``kind`` names the sort of mistake."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Memory:
    """``size`` words, all unwritten."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.words: npt.NDArray[np.uint32] = np.zeros(size, np.uint32)
        self.written: npt.NDArray[np.bool_] = np.zeros(size, np.bool_)

    def _check(self, address: int) -> None:
        if not 0 <= address < len(self.words):
            raise ModelFault("memory", f"byte {address * 4:#x} is outside {self.name}")

    def load(self, address: int) -> int:
        """The word at word offset ``address``."""
        self._check(address)
        if not self.written[address]:
            raise ModelFault("memory", f"byte {address * 4:#x} of {self.name} is read, but was not written")
        return int(self.words[address])

    def store(self, address: int, word: int) -> None:
        self._check(address)
        self.words[address] = word
        self.written[address] = True

    def zero(self) -> None:
        """What the memory-zeroise bit does: every word becomes a written 0."""
        self.words[:] = 0
        self.written[:] = True

    def block(self, byte: int, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A copy of ``count`` items of ``dtype`` from byte ``byte`` on, all words written before."""
        end = byte + count * np.dtype(dtype).itemsize
        for address in range(byte // 4, (end + 3) // 4):
            self.load(address)
        items: npt.NDArray[Any] = self.words.view(np.uint8)[byte:end].view(dtype).copy()
        return items

    def store_block(self, byte: int, values: npt.NDArray[Any]) -> None:
        """Store an array of 4-byte items from byte ``byte`` on."""
        for i, word in enumerate(np.ascontiguousarray(values).reshape(-1).view(np.uint32)):
            self.store(byte // 4 + i, int(word))


class HostMemory:
    """The kernel's arguments. Each buffer is given as bytes, or as a size to be filled."""

    def __init__(self, buffers: Sequence[bytes | int] = ()) -> None:
        self.buffers: list[Memory] = []
        self.addresses: list[int] = []
        at = FIRST_BUFFER_ADDRESS
        for i, content in enumerate(buffers):
            size = content if isinstance(content, int) else len(content)
            memory = Memory(f"kernel argument {i}", -(-size // 4))
            if isinstance(content, bytes):
                memory.store_block(0, np.frombuffer(content.ljust(-(-size // 4) * 4, b"\0"), np.uint32))
            self.buffers.append(memory)
            self.addresses.append(at)
            at += -(-size // BUFFER_GAP) * BUFFER_GAP + BUFFER_GAP

    def patched_address(self, argument: int, offset: int) -> int:
        """What DDR_PATCH writes into a BD: the argument's address, as the shim sees it."""
        if argument >= len(self.buffers):
            raise ModelFault("ddr", f"kernel argument {argument} of {len(self.buffers)}")
        if offset % 4 or offset > len(self.buffers[argument].words) * 4:
            raise ModelFault("ddr", f"offset {offset} into kernel argument {argument}")
        return self.addresses[argument] + offset + DDR_APERTURE

    def place(self, byte_address: int) -> tuple[Memory, int]:
        """The buffer, and the word in it, that the shim finds at ``byte_address``."""
        for memory, start in zip(self.buffers, self.addresses, strict=True):
            offset = byte_address - DDR_APERTURE - start
            if 0 <= offset < len(memory.words) * 4:
                return memory, offset // 4
        raise ModelFault("ddr", f"address {byte_address:#x} is in no kernel argument")
