# SPDX-License-Identifier: Apache-2.0
"""Buffer descriptors, task queue words, switch words and packet headers: values <-> words.

Lengths, steps and bases count 32-bit words; steps, wraps and repeats are logical values (a step of 1
is the next word), and the tables in ``registers`` define how they are stored. Every encoder checks
its ranges; the error names field, value and range.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import TransactionError
from onedispatch.transactions.base.text import counted, span
from onedispatch.transactions.machine import registers
from onedispatch.transactions.machine.registers import Field, TileMap

WORD_MASK = 0xFFFFFFFF
_Bd = TypeVar("_Bd", bound="BufferDescriptor")


def pack_fields(where: str, fields: Iterable[Field], values: Mapping[str, int], words: int) -> list[int]:
    """Returns words with each field set to its value; fields without a value are raw zero.

    Raises:
        TransactionError: a value does not fit its field, or a name is no field.
    """
    out = [0] * words
    used = 0
    for field, name, low, high, word, lsb, bias, mask in _layout(fields):
        value = values.get(name)
        if value is None:
            continue
        used += 1
        if not low <= value <= high:
            raise _out_of_range(where, field, value)
        out[word] |= ((value - bias) & mask) << lsb
    if used != len(values):
        names = [field.name for field in fields]
        raise TransactionError(where, f"field {sorted(set(values) - set(names))}", ", ".join(names))
    return out


_Row = tuple[Field, str, int, int, int, int, int, int]
_LAYOUTS: dict[int, tuple[Iterable[Field], list[_Row]]] = {}  # by identity: a tuple of fields hashes slowly
_LAYOUTS_KEPT = 256


def _layout(fields: Iterable[Field]) -> list[_Row]:
    """Returns field, name, least and largest value, word, lowest bit, bias and mask of every field."""
    known = _LAYOUTS.get(id(fields))
    if known is not None and known[0] is fields:
        return known[1]
    rows = [(f, f.name, f.minimum, f.maximum, f.word, f.lsb, f.bias, (1 << f.width) - 1) for f in fields]
    if isinstance(fields, tuple):  # only an immutable key may be cached
        if len(_LAYOUTS) >= _LAYOUTS_KEPT:
            _LAYOUTS.clear()
        _LAYOUTS[id(fields)] = fields, rows
    return rows


def unpack_fields(fields: Iterable[Field], words: Sequence[int]) -> dict[str, int]:
    """Returns the value of each field."""
    values = {}
    for field in fields:
        raw = (words[field.word] >> field.lsb) & ((1 << field.width) - 1)
        if field.signed and raw >> (field.width - 1):
            raw -= 1 << field.width
        values[field.name] = raw + field.bias
    return values


def _out_of_range(where: str, field: Field, value: int) -> TransactionError:
    return TransactionError(
        f"{where} field {field.name}",
        str(value),
        span(field.minimum, field.maximum) + (f" ({field.doc})" if field.doc else ""),
        "split the work so that the field fits",
    )


@dataclass(frozen=True, kw_only=True)
class BufferDescriptor:
    """Base of the three kinds of descriptor. Field names and meanings are those of ``registers``."""

    tile: ClassVar[TileMap]
    dimensions: ClassVar[int]

    length: int = 0
    packet_type: int = 0
    packet_id: int = 0
    ooo_bd_id: int = 0
    enable_packet: int = 0
    d0_step: int = 1
    d0_wrap: int = 0
    d1_step: int = 1
    d1_wrap: int = 0
    d2_step: int = 1
    iteration_step: int = 1
    iteration_wrap: int = 1
    iteration_current: int = 0
    acquire_lock: int = 0
    acquire_value: int = 0
    acquire_enable: int = 0
    release_lock: int = 0
    release_value: int = 0
    valid: int = 1
    use_next: int = 0
    next_bd: int = 0
    suppress_tlast: int = 0

    def _to_raw(self) -> dict[str, int]:
        return dict(self.__dict__)

    @classmethod
    def _from_raw(cls, raw: dict[str, int]) -> dict[str, int]:
        return raw

    def to_words(self) -> list[int]:
        """Returns the words of the BD registers, 8 (shim, mem) or 6 (core).

        Raises:
            TransactionError: a field does not fit.
        """
        where = f"{self.tile.kind} BD"
        return pack_fields(where, self.tile.bd_fields, self._to_raw(), self.tile.bd_words)

    @classmethod
    def from_words(cls: type[_Bd], words: Sequence[int]) -> _Bd:
        """Returns the BD that these words describe; bits that no field covers are dropped."""
        if len(words) < cls.tile.bd_words:
            raise TransactionError(
                f"{cls.tile.kind} BD",
                counted(len(words), "word"),
                counted(cls.tile.bd_words, "word"),
                "pass a whole BD",
            )
        return cls(**cls._from_raw(unpack_fields(cls.tile.bd_fields, words)))

    @classmethod
    def at(
        cls: type[_Bd],
        address: int,
        length: int,
        dims: Sequence[tuple[int, int]] = (),
        *,
        iteration: tuple[int, int] | None = None,
        acquire: tuple[int, int] | None = None,
        release: tuple[int, int] | None = None,
        next_bd: int | None = None,
        packet_id: int | None = None,
        **more: int,
    ) -> _Bd:
        """Builds a BD from byte addresses, (step, count) dimensions and the tile's own lock ids.

        Args:
            address: byte address, 4-aligned: in the tile's own memory (mem, core) or in the
                buffer whose address DDR_PATCH adds (shim).
            length: 32-bit words moved per execution.
            dims: (step, count) per dimension, innermost first; steps in words. The tile's outermost
                dimension has no counter: ``length`` bounds it.
            iteration: (step, count) of the iteration dimension.
            acquire: (own lock id, value); value -n waits for at least n and takes n.
            release: (own lock id, value added).
            next_bd: BD that follows in the chain.
            packet_id: put a packet header with this id before the data.
            more: any other field by name.

        Raises:
            TransactionError: a value does not fit its field.
        """
        values = dict(more)
        values.update(cls._address(address))
        values["length"] = length
        values.update(cls._dims(dims, length))
        lock_base = cls.tile.own_lock_view
        if iteration is not None:
            values["iteration_step"], values["iteration_wrap"] = iteration
        if acquire is not None:
            values["acquire_lock"] = acquire[0] + lock_base
            values["acquire_value"] = acquire[1]
            values["acquire_enable"] = 1
        if release is not None:
            values["release_lock"] = release[0] + lock_base
            values["release_value"] = release[1]
        if next_bd is not None:
            values["use_next"], values["next_bd"] = 1, next_bd
        if packet_id is not None:
            values["enable_packet"], values["packet_id"] = 1, packet_id
        if not values.keys() <= cls.__dataclass_fields__.keys():
            unknown = set(values) - {field.name for field in dataclasses.fields(cls)}
            raise TransactionError(
                f"{cls.tile.kind} BD",
                f"field {sorted(unknown)}",
                ", ".join(field.name for field in dataclasses.fields(cls)),
            )
        return cls(**values)

    @classmethod
    def _address(cls, address: int) -> dict[str, int]:
        if address % 4 or not 0 <= address < cls.tile.bd_reach:
            raise TransactionError(
                f"{cls.tile.kind} BD address",
                f"{address:#x}",
                f"multiples of 4 below {cls.tile.bd_reach:#x}",
                "move the buffer",
            )
        return {"base": (address + cls.tile.own_memory_view) // 4}

    @classmethod
    def _dims(cls, dims: Sequence[tuple[int, int]], length: int) -> dict[str, int]:
        if len(dims) > cls.dimensions:
            raise TransactionError(
                f"{cls.tile.kind} BD",
                counted(len(dims), "dimension"),
                f"at most {cls.dimensions}",
                "merge dimensions or use the iteration dimension",
            )
        values = {}
        inner = 1
        for i, (step, count) in enumerate(dims):
            values[f"d{i}_step"] = step
            if f"d{i}_wrap" in cls.tile.bd_field:
                values[f"d{i}_wrap"] = count
            elif count and inner * count != length:
                raise TransactionError(
                    f"{cls.tile.kind} BD dimension {i}",
                    f"count {count} around {counted(inner, 'word')}",
                    f"{counted(inner * count, 'word')} of length, not {length}",
                    "the outermost dimension has no counter: set the length to the product of all counts",
                )
            inner *= count
        return values


@dataclass(frozen=True, kw_only=True)
class ShimBd(BufferDescriptor):
    """A shim BD, 8 words; ``address`` in bytes, usually an offset that DDR_PATCH replaces."""

    tile: ClassVar[TileMap] = registers.SHIM
    dimensions: ClassVar[int] = 3

    address: int = 0
    secure: int = 0
    burst: int = 3
    axqos: int = 0
    axcache: int = 2
    smid: int = 0

    def _to_raw(self) -> dict[str, int]:
        raw = dict(self.__dict__)
        address = raw.pop("address")
        if address % 4 or not 0 <= address < 1 << 48:
            raise TransactionError(
                "shim BD address", f"{address:#x}", "multiples of 4 below 2**48", "align the buffer"
            )
        raw["address_low"] = (address & WORD_MASK) >> 2
        raw["address_high"] = address >> 32
        return raw

    @classmethod
    def _from_raw(cls, raw: dict[str, int]) -> dict[str, int]:
        raw["address"] = raw.pop("address_low") << 2 | raw.pop("address_high") << 32
        return raw

    @classmethod
    def _address(cls, address: int) -> dict[str, int]:
        return {"address": address}


@dataclass(frozen=True, kw_only=True)
class MemBd(BufferDescriptor):
    """A memory tile BD, 8 words; ``base`` in words of the three-tile view (own from 0x20000)."""

    tile: ClassVar[TileMap] = registers.MEM
    dimensions: ClassVar[int] = 4

    base: int = registers.MEM.own_memory_view // 4
    d2_wrap: int = 0
    d3_step: int = 1
    d0_zeros_before: int = 0
    d0_zeros_after: int = 0
    d1_zeros_before: int = 0
    d1_zeros_after: int = 0
    d2_zeros_before: int = 0
    d2_zeros_after: int = 0
    enable_compression: int = 0


@dataclass(frozen=True, kw_only=True)
class CoreBd(BufferDescriptor):
    """A core tile BD, 6 words; ``base`` in words of the tile's data memory."""

    tile: ClassVar[TileMap] = registers.CORE
    dimensions: ClassVar[int] = 3

    base: int = 0
    enable_compression: int = 0


BD_CLASSES: Mapping[str, type[BufferDescriptor]] = {"shim": ShimBd, "mem": MemBd, "core": CoreBd}


@public
def decode_bd(kind: str, words: Sequence[int]) -> BufferDescriptor:
    """Returns the BD of a tile kind (``"shim"``, ``"mem"``, ``"core"``)."""
    return BD_CLASSES[kind].from_words(words)


def _word(where: str, fields: Iterable[Field], **values: int) -> int:
    return pack_fields(where, tuple(fields), values, 1)[0]


def queue_fields(kind: str) -> tuple[Field, ...]:
    return registers.MEM_QUEUE_FIELDS if kind == "mem" else registers.QUEUE_FIELDS


@public
def queue_word(kind: str, start_bd: int, repeat: int = 1, token: bool = False) -> int:
    """Returns the word that pushes one task: the chain from ``start_bd``, run ``repeat`` times (1..256)."""
    where = f"{kind} task queue"
    return _word(where, queue_fields(kind), start_bd=start_bd, repeat=repeat, token=int(token))


@public
def decode_queue(kind: str, word: int) -> dict[str, int]:
    """Returns ``start_bd``, ``repeat`` and ``token`` of a queue word."""
    return unpack_fields(queue_fields(kind), [word])


def _with_odd_parity(word: int) -> int:
    return word | (0 if bin(word).count("1") % 2 else 1 << 31)


@public
def packet_header(packet_id: int, packet_type: int = 0, source_row: int = 0, source_column: int = 0) -> int:
    """Returns the header word of a stream packet, odd parity included."""
    return _with_odd_parity(
        _word(
            "packet header",
            registers.PACKET_HEADER_FIELDS,
            id=packet_id,
            type=packet_type,
            source_row=source_row,
            source_column=source_column,
        )
    )


@public
def control_packet_header(offset: int, beats: int, operation: int = 0, return_id: int = 0) -> int:
    """Returns the second word of a control packet (1 to 4 data words follow), odd parity included."""
    return _with_odd_parity(
        _word(
            "control packet",
            registers.CONTROL_PACKET_FIELDS,
            offset=offset,
            beats=beats,
            operation=operation,
            return_id=return_id,
        )
    )


@public
def circuit_master(slave: int, drop_header: bool = False) -> int:
    """Returns the switch master word of a circuit route: one slave port feeds the master."""
    return _word(
        "switch master", registers.MASTER_FIELDS, slave=slave, drop_header=int(drop_header), enable=1
    )


@public
def packet_master(arbiter: int, msel_enable: int, drop_header: bool = False) -> int:
    """Returns the switch master word of a packet route: packets of ``arbiter`` whose msel is in the mask."""
    return _word(
        "switch master",
        registers.MASTER_FIELDS,
        arbiter=arbiter,
        msel_enable=msel_enable,
        drop_header=int(drop_header),
        packet=1,
        enable=1,
    )


@public
def switch_slave(packet: bool = False) -> int:
    """Returns the word of an enabled switch slave port."""
    return _word("switch slave", registers.SLAVE_FIELDS, packet=int(packet), enable=1)


@public
def switch_slot(packet_id: int, arbiter: int, msel: int, mask: int = 0x1F) -> int:
    """Returns a slave slot word: packets with ``(id & mask) == packet_id`` go to arbiter and msel."""
    return _word(
        "switch slot", registers.SLOT_FIELDS, id=packet_id, mask=mask, arbiter=arbiter, msel=msel, enable=1
    )


@public
def switch_merge(turns: Sequence[tuple[int, int]]) -> list[int]:
    """Returns the words of a deterministic merge: the turns (slave port, packet count), repeated endlessly.

    Raises:
        TransactionError: no turns, or more than the registers hold.
    """
    if not 1 <= len(turns) <= registers.MERGE_TURNS:
        raise TransactionError("switch merge", counted(len(turns), "turn"), span(1, registers.MERGE_TURNS))
    values = {"enable": 1}
    for number, (slave, packets) in enumerate(turns):
        values[f"slave{number}"], values[f"packets{number}"] = slave, packets
    words = max(field.word for field in registers.MERGE_FIELDS) + 1
    return pack_fields("switch merge", registers.MERGE_FIELDS, values, words)


@public
def lock_request_offset(kind: str, lock: int, value: int, acquire: bool) -> int:
    """Returns the tile offset whose *read* performs the request; bit 0 of the value read means success.

    Args:
        lock: id of the tile's own lock.
        value: acquire: -n waits for at least n; release: the amount added. -64..63.

    Raises:
        TransactionError: no such lock, or the value does not fit 7 bits.
    """
    block = registers.TILES[kind].block["LOCK_REQUEST"]
    if not 0 <= lock < block.count or not -64 <= value <= 63:
        raise TransactionError(
            f"{kind} lock request",
            f"lock {lock}, value {value}",
            f"locks 0 to {block.count - 1}, values -64 to 63",
            "use a lock that the tile has",
        )
    return (
        block.offset
        + lock * registers.LOCK_REQUEST_STRIDE
        + (registers.LOCK_REQUEST_ACQUIRE if acquire else 0)
        + ((value & registers.LOCK_REQUEST_VALUE_MASK) << registers.LOCK_REQUEST_VALUE_SHIFT)
    )


def decode_lock_request(kind: str, offset: int) -> tuple[int, int, bool] | None:
    """Returns (lock, value, acquire) of an offset in the request window, None outside it."""
    block = registers.TILES[kind].block["LOCK_REQUEST"]
    if not block.offset <= offset < block.end:
        return None
    lock, rest = divmod(offset - block.offset, registers.LOCK_REQUEST_STRIDE)
    value = (rest >> registers.LOCK_REQUEST_VALUE_SHIFT) & registers.LOCK_REQUEST_VALUE_MASK
    return lock, value - 128 if value > 63 else value, bool(rest & registers.LOCK_REQUEST_ACQUIRE)


def describe_fields(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Returns ``name=value`` of every field that differs from its default."""
    return " ".join(f"{name}={value}" for name, value in values.items() if value != defaults.get(name))
