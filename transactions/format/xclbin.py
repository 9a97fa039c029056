# SPDX-License-Identifier: Apache-2.0
"""The simulator's ``xclbin``: a small container of kernel names and overlays (PDIs).

A PDI is a transaction that configures the array; creating a hardware context loads PDI 0,
LOADPDI inside a run loads another. Byte layout, all little-endian:

    offset  size  what
         0     8  magic, the ASCII characters ODXCLBIN
         8     4  u32 version, 1
        12     4  u32 size of the whole container in bytes
        16    32  device name ("npu2_4col"), UTF-8, padded with zero bytes
        48    16  uuid: first 16 bytes of SHA-256 over bytes [8, 48) followed by [64, size)
        64     4  u32 kernel count K, at least 1
        68     4  u32 PDI count P, at least 1
        72     4  u32 CRC-32 (IEEE 802.3, as zlib's) of bytes [80, size)
        76     4  u32 reserved, 0
        80  64*K  kernel names, UTF-8, each padded with zero bytes to 64;
                  the first one starts with "MLIR_AIE"
         .  16*P  PDI table right after the names, ids ascending and unique, id 0 present:
                  u32 id, u32 size in bytes, u64 offset from the container's first byte
         .     .  PDIs in table order, each starting at the next multiple of 8 (zero padding);
                  the container ends with the last byte of the last PDI

A reader checks magic, version, size and CRC, and that every PDI lies inside. It need not verify the
uuid: only writers and the Python reader compute it.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from onedispatch.transactions.base.boundary import guarded
from onedispatch.transactions.base.cached import cached_property
from onedispatch.transactions.base.errors import CompiledModelError
from onedispatch.transactions.base.text import counted, span
from onedispatch.transactions.format import spec

MAGIC = b"ODXCLBIN"
VERSION = 1
DEVICE_BYTES, UUID_BYTES, KERNEL_BYTES = 32, 16, 64
DEVICE_AT, UUID_AT, COUNTS_AT, KERNELS_AT = 16, 48, 64, 80
PDI_ALIGN = 8
KERNEL_PREFIX = "MLIR_AIE"
MAX_ENTRIES = 4096
PDI_ENTRY = struct.Struct("<IIQ")


def _fixed(what: str, text: str, size: int) -> bytes:
    data = text.encode() if isinstance(text, str) else b""
    if not data or len(data) >= size or b"\0" in data:
        raise CompiledModelError(
            f"xclbin {what}",
            repr(text),
            f"{span(1, size - 1)} bytes of UTF-8 without zeros",
            "shorten the name",
        )
    return data.ljust(size, b"\0")


@guarded
@dataclass(frozen=True)
class Xclbin:
    """Kernel names and overlays for one device.

    Args:
        device: device name, as ``find_device`` knows it.
        pdis: id -> bytes of a transaction; the hardware context loads id 0.
        kernels: kernel names; the first starts with ``MLIR_AIE``.

    Raises:
        CompiledModelError: names or ids that the container cannot hold.
    """

    device: str
    pdis: Mapping[int, bytes]
    kernels: tuple[str, ...] = (KERNEL_PREFIX,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pdis", MappingProxyType(dict(sorted(self.pdis.items()))))
        if not self.kernels or not self.kernels[0].startswith(KERNEL_PREFIX):
            raise CompiledModelError(
                "xclbin kernels",
                str(self.kernels),
                f"a first name that starts with {KERNEL_PREFIX}",
                "hosts look for that prefix",
            )
        if 0 not in self.pdis or any(not 0 <= i <= 0xFFFF for i in self.pdis):
            raise CompiledModelError(
                "xclbin PDIs", f"ids {list(self.pdis)}", "ids 0 to 65535, 0 among them", "LOADPDI has 16 bits"
            )
        for pdi_id, data in self.pdis.items():
            size = int.from_bytes(data[12:16], "little")
            if len(data) < spec.HEADER_SIZE or size != len(data):
                raise CompiledModelError(
                    f"xclbin PDI {pdi_id}",
                    f"{counted(len(data), 'byte')} whose header says {size}",
                    "a whole transaction",
                    "build it with TransactionBuilder",
                )

    @cached_property
    def _bytes(self) -> bytes:
        names = b"".join(_fixed("kernel name", name, KERNEL_BYTES) for name in self.kernels)
        at = KERNELS_AT + len(names) + PDI_ENTRY.size * len(self.pdis)
        table, blobs = b"", b""
        for pdi_id, data in self.pdis.items():
            blobs += b"\0" * (-(at + len(blobs)) % PDI_ALIGN)
            table += PDI_ENTRY.pack(pdi_id, len(data), at + len(blobs))
            blobs += data
        content = names + table + blobs
        counts = struct.pack("<IIII", len(self.kernels), len(self.pdis), zlib.crc32(content), 0)
        head = struct.pack("<II", VERSION, KERNELS_AT + len(content))
        head += _fixed("device name", self.device, DEVICE_BYTES)
        uuid = hashlib.sha256(head + counts + content).digest()[:UUID_BYTES]
        return MAGIC + head + uuid + counts + content

    @property
    def uuid(self) -> bytes:
        """16 bytes derived from the content alone."""
        return self._bytes[UUID_AT : UUID_AT + UUID_BYTES]

    def to_bytes(self) -> bytes:
        return self._bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> Xclbin:
        """Decodes a container.

        Raises:
            CompiledModelError: the bytes are no container, of another version, cut off or damaged.
        """
        _check_frame(data)
        kernel_count, pdi_count, crc, _ = struct.unpack_from("<IIII", data, COUNTS_AT)
        table_at = KERNELS_AT + kernel_count * KERNEL_BYTES
        if max(kernel_count, pdi_count) > MAX_ENTRIES or table_at + pdi_count * PDI_ENTRY.size > len(data):
            entries = f"{counted(kernel_count, 'kernel')} and {counted(pdi_count, 'PDI')}"
            raise _damaged(f"{entries} in {counted(len(data), 'byte')}")
        if zlib.crc32(data[KERNELS_AT:]) != crc:
            raise _damaged("a CRC that does not match the content")
        kernels = tuple(
            _text(data[KERNELS_AT + i * KERNEL_BYTES :][:KERNEL_BYTES]) for i in range(kernel_count)
        )
        pdis = {}
        for i in range(pdi_count):
            pdi_id, size, offset = PDI_ENTRY.unpack_from(data, table_at + i * PDI_ENTRY.size)
            if offset + size > len(data):
                raise _damaged(f"PDI {pdi_id} at {offset} with {counted(size, 'byte')}")
            pdis[pdi_id] = data[offset : offset + size]
        xclbin = cls(_text(data[DEVICE_AT : DEVICE_AT + DEVICE_BYTES]), pdis, kernels)
        if xclbin.to_bytes() != data:
            raise _damaged("bytes that differ from those that its content encodes to")
        return xclbin


def _damaged(given: str) -> CompiledModelError:
    return CompiledModelError("xclbin", given, "an undamaged container", "write the file again")


def _text(data: bytes) -> str:
    try:
        return data.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        raise _damaged(f"a name that is not UTF-8 ({error.reason})") from error


def _check_frame(data: bytes) -> None:
    if data[: len(MAGIC)] != MAGIC:
        raise CompiledModelError(
            "xclbin",
            f"a file that starts with {data[:8]!r}",
            f"the magic {MAGIC!r}",
            "the simulator reads its own containers, not vendor xclbin files",
        )
    if len(data) < KERNELS_AT:
        raise _damaged(f"{counted(len(data), 'byte')}, fewer than the {KERNELS_AT} of the head")
    version, size = struct.unpack_from("<II", data, len(MAGIC))
    if version != VERSION:
        raise CompiledModelError("xclbin", f"version {version}", f"version {VERSION}", "write the file again")
    if size != len(data):
        raise _damaged(f"{counted(len(data), 'byte')} of a container of {size}")
