# SPDX-License-Identifier: Apache-2.0
"""Fuse maps: JSON files that list the transactions to fuse, their arg maps and optional bindings.

    {"parts": [{"file": "gemm.bin", "control": "gemm_ctrl.bin",
                "args": [{"kind": "OUTPUT", "xrt_arg_idx": 0, "onnx_arg_idx": 2, "offset": 0,
                          "size": 98304, "tensor": "y"}, ...],
                "bindings": {"tensors": {"2": [1, 0]}, "const": 0, "params": 0}}],
     "sizes": {"0": 4096}, "outputs": ["y"], "control_argument": 5}

Paths are relative to the JSON file. A part without ``args`` is copied unchanged. If no part has
``bindings``, tensors of the same name are one tensor, a tensor that is written and read becomes
scratch unless ``outputs`` names it, and the regions of each buffer are laid out consecutively.
``sizes`` are checked if given, and default to those of that layout. ``control_argument`` 4 appends
control packets to the parameters.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onedispatch.transactions.analysis.transaction import Transaction
from onedispatch.transactions.arguments.argmap import ArgKind, ArgMap
from onedispatch.transactions.arguments.relocation import Bindings
from onedispatch.transactions.base.errors import InputError, TransactionError
from onedispatch.transactions.base.files import read_file
from onedispatch.transactions.fusion.fuse import fuse
from onedispatch.transactions.packets.control_packets import ControlPackets
from onedispatch.transactions.packets.packet import ControlPacket, Patch

_ALIGN = 64
_NUMBERS = ("xrt_arg_idx", "onnx_arg_idx", "offset", "size", "padding_offset")
_BINDINGS = ("const", "params", "scratch", "ctrl", "ctrl_argument")
_PART_KEYS = ("file", "args", "bindings", "control")
_MAP_KEYS = ("parts", "sizes", "outputs", "control_argument")


@dataclass(frozen=True)
class FuseMapPart:
    """One operator: its transaction, regions, tensor names by onnx_arg_idx, and bindings."""

    name: str
    transaction: Transaction
    args: tuple[ArgMap, ...] | None
    tensors: Mapping[int, str]
    bindings: Bindings | None
    control: ControlPackets | None


@dataclass
class BufferLayout:
    """The layout of the fused buffers.

    Attributes:
        sizes: bytes per fused argument.
        tensors: name -> (fused argument, offset of the data).
        bindings: of each part.
    """

    sizes: dict[int, int] = field(default_factory=dict)
    tensors: dict[str, tuple[int, int]] = field(default_factory=dict)
    bindings: list[Bindings] = field(default_factory=list)


@dataclass(frozen=True)
class Fused:
    """A fused transaction; ``control`` is None if no part has control packets."""

    transaction: Transaction
    control: ControlPackets | None
    layout: BufferLayout


def fuse_map(path: Path) -> Fused:
    """Fuses the transactions of a fuse map.

    Raises:
        InputError: a file cannot be read, or the JSON is no fuse map.
        TransactionError: ``fuse`` refuses the parts.
    """
    data = _object(_parsed(read_file(path), path.name), path.name, _MAP_KEYS)
    entries = _list(data.get("parts"), f"{path.name} parts")
    parts = [_part(entry, f"{path.name} part {i}", path.parent) for i, entry in enumerate(entries)]
    argument = _number(data.get("control_argument", 5), f"{path.name} control_argument")
    if argument not in (4, 5):
        raise InputError(f"{path.name} control_argument", str(argument), "4 or 5")
    bound = [part.bindings is not None for part in parts if part.args is not None]
    if any(bound) and not all(bound):
        raise InputError(path.name, "bindings in some parts only", "in all parts with args, or in none")
    if any(bound):
        layout = BufferLayout(bindings=[part.bindings or Bindings() for part in parts])
    else:
        outputs = {str(name) for name in _list(data.get("outputs", []), f"{path.name} outputs")}
        layout = plan_buffers(parts, outputs, argument)
    if "sizes" in data:
        given = _object(data["sizes"], f"{path.name} sizes", None)
        layout.sizes = {
            _number(_integer(key), f"{path.name} sizes"): _number(size, f"{path.name} sizes {key}")
            for key, size in given.items()
        }
    return fuse_parts(parts, layout)


def fuse_parts(parts: list[FuseMapPart], layout: BufferLayout) -> Fused:
    """Fuses all parts into one transaction and one blob of control packets."""
    pieces: list[Any] = [
        part.transaction if part.args is None else (part.transaction, part.args, bindings)
        for part, bindings in zip(parts, layout.bindings, strict=True)
    ]
    transaction = fuse(pieces, layout.sizes or None)
    packets: list[ControlPacket] = []
    patches: list[Patch] = []
    at = 0
    for part, bindings in zip(parts, layout.bindings, strict=True):
        if part.control is None:
            continue
        moved = part.control.relocated(part.args or (), bindings)
        for patch in moved.patches:
            patches.append(dataclasses.replace(patch, offset=patch.offset + at))
        packets += moved.packets
        at += sum(packet.size for packet in moved.packets)
    first = next((b for part, b in zip(parts, layout.bindings, strict=True) if part.control), Bindings())
    control = ControlPackets(tuple(packets), tuple(patches), first.ctrl_argument, first.ctrl)
    return Fused(transaction, control if packets else None, layout)


# --- Planning -----------------------------------------------------------------------------------


def plan_buffers(parts: list[FuseMapPart], outputs: set[str], control_argument: int = 5) -> BufferLayout:
    """Returns a layout: tensors by name; constants, parameters and control packets laid out consecutively."""
    layout = BufferLayout()
    ends = dict.fromkeys(range(6), 0)
    written = {name for part in parts for name in _names(part, ArgKind.OUTPUT)}
    read = {name for part in parts for name in _names(part, ArgKind.INPUT)}
    extents: dict[str, tuple[int, int]] = {}
    for part in parts:
        for entry in part.args or ():
            name = part.tensors.get(entry.onnx_arg_idx, "")
            if entry.kind in (ArgKind.INPUT, ArgKind.OUTPUT):
                front, size = extents.get(name, (0, 0))
                extents[name] = max(front, entry.padding_offset), max(size, entry.size)
    for name, (front, size) in extents.items():
        inner = name in written and name in read and name not in outputs
        argument = 2 if inner else 1 if name in written else 0
        start = _aligned(ends[argument] + front)
        layout.tensors[name] = (argument, start)
        ends[argument] = start + size
    scratch = _aligned(ends[2])
    params_end = sum(_aligned(_end(part, ArgKind.CONST_KERNEL_PARAM_INPUT)) for part in parts)
    control_at = params_end if control_argument == 4 else 0
    for part in parts:
        tensors = {
            index: layout.tensors[name] for index, name in part.tensors.items() if name in layout.tensors
        }
        layout.bindings.append(
            Bindings(tensors, ends[3], ends[4], scratch, control_at, control_argument, in_place=False)
        )
        ends[2] = max(ends[2], scratch + _end(part, ArgKind.SCRATCH_PAD))
        ends[3] = _aligned(ends[3] + _end(part, ArgKind.CONST_INPUT))
        ends[4] = _aligned(ends[4] + _end(part, ArgKind.CONST_KERNEL_PARAM_INPUT))
        if part.control is not None:
            control_at += sum(packet.size for packet in part.control.packets)
        else:
            control_at += _end(part, ArgKind.CTRL_PKT_BIN)
    ends[control_argument] = max(ends[control_argument], control_at)
    layout.sizes = ends
    return layout


def _names(part: FuseMapPart, kind: ArgKind) -> set[str]:
    return {part.tensors[entry.onnx_arg_idx] for entry in part.args or () if entry.kind is kind}


def _end(part: FuseMapPart, kind: ArgKind) -> int:
    return max((entry.end for entry in part.args or () if entry.kind is kind), default=0)


def _aligned(number: int) -> int:
    return -(-number // _ALIGN) * _ALIGN


# --- JSON ---------------------------------------------------------------------------------------


def _parsed(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(where, f"{error}"[:200], "JSON", "see transactions/README.md") from error


def _object(value: Any, where: str, keys: tuple[str, ...] | None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(where, f"{value!r:.60}", "an object")
    unknown = sorted(set(value) - set(keys)) if keys is not None else []
    if unknown:
        raise InputError(where, f"key {unknown[0]!r}", ", ".join(keys or ()))
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(where, f"{value!r:.60}", "a list")
    return value


def _number(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 48:
        raise InputError(where, f"{value!r:.60}", "a number from 0 to 2**48")
    return value


def _integer(key: str) -> Any:
    """Parses a number that JSON represents as a key."""
    return int(key) if key.isdecimal() and len(key) < 16 else key


def _part(value: Any, where: str, folder: Path) -> FuseMapPart:
    entry = _object(value, where, _PART_KEYS)
    name = entry.get("file")
    if not isinstance(name, str):
        raise InputError(f"{where} file", f"{name!r:.60}", "a path")
    args = tensors = bindings = None
    if entry.get("args") is not None:
        rows = _list(entry["args"], f"{where} args")
        args = tuple(_arg(row, f"{where} args {i}") for i, row in enumerate(rows))
        tensors = _tensor_names(rows, args, where)
    if entry.get("bindings") is not None:
        bindings = _bindings(entry["bindings"], f"{where} bindings")
    control = _control(folder / str(entry["control"])) if entry.get("control") else None
    transaction = _transaction(folder / name, f"{where} {name}")
    return FuseMapPart(name, transaction, args, tensors or {}, bindings, control)


def _transaction(path: Path, where: str) -> Transaction:
    """Decodes a transaction; errors name its file."""
    try:
        return Transaction.from_bytes(read_file(path))
    except TransactionError as error:
        error.where = f"{where}: {error.where}"
        raise


def _control(path: Path) -> ControlPackets:
    meta = path.with_name(f"{path.stem}_meta.json")
    return ControlPackets.from_bytes(read_file(path), read_file(meta) if meta.exists() else None)


def _arg(value: Any, where: str) -> ArgMap:
    row = _object(value, where, ("kind", "tensor", *_NUMBERS))
    kind = row.get("kind")
    if not isinstance(kind, str) or kind not in ArgKind.__members__:
        raise InputError(f"{where} kind", f"{kind!r:.60}", ", ".join(ArgKind.__members__))
    numbers = {}
    for name in _NUMBERS:
        if name not in row and name in ("xrt_arg_idx", "size"):
            raise InputError(where, f"no {name}", "kind, xrt_arg_idx, size", "the others default to 0")
        numbers[name] = _number(row.get(name, 0), f"{where} {name}")
    return ArgMap(ArgKind[kind], **numbers)


def _tensor_names(rows: list[Any], args: tuple[ArgMap, ...], where: str) -> dict[int, str]:
    names: dict[int, str] = {}
    for row, entry in zip(rows, args, strict=True):
        if entry.kind in (ArgKind.INPUT, ArgKind.OUTPUT):
            name = str(row.get("tensor", f"{where} {entry.onnx_arg_idx}"))
            if names.setdefault(entry.onnx_arg_idx, name) != name:
                raise InputError(f"{where} args", f"tensor {name!r}", f"{names[entry.onnx_arg_idx]!r} again")
    return names


def _bindings(value: Any, where: str) -> Bindings:
    row = _object(value, where, ("tensors", "in_place", *_BINDINGS))
    tensors = {}
    for key, place in _object(row.get("tensors", {}), f"{where} tensors", None).items():
        at = _list(place, f"{where} tensor {key}")
        if len(at) != 2 or at[0] not in (0, 1, 2):
            raise InputError(f"{where} tensor {key}", f"{at!r:.60}", "[fused argument 0 to 2, offset]")
        tensors[_number(_integer(key), f"{where} tensors")] = (at[0], _number(at[1], f"{where} tensor {key}"))
    numbers = {name: _number(row[name], f"{where} {name}") for name in _BINDINGS if name in row}
    return Bindings(tensors, in_place=bool(row.get("in_place", False)), **numbers)
