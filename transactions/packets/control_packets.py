# SPDX-License-Identifier: Apache-2.0
"""Control packets: register writes that travel as stream packets to a tile's control port.

A blob (``*_ctrl.bin``) is packet after packet: stream header, control header, 1 to 4 data words.
Its meta file (``*_ctrl_meta.json``) lists the patches: where the host puts buffer addresses before
the blob is sent. Routing determines a packet's tile: a ``PacketTiles`` map holds it, or ``tiles()``
infers it from the registers written. ``to_transaction`` converts the packets to a transaction, for
the text, the explanation, the checks and the diff.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onedispatch.transactions.analysis.transaction import Transaction
from onedispatch.transactions.analysis.validation import Finding, FindingKind
from onedispatch.transactions.arguments.argmap import ArgMap
from onedispatch.transactions.arguments.relocation import Bindings, relocated
from onedispatch.transactions.base.boundary import guarded
from onedispatch.transactions.base.errors import TransactionError
from onedispatch.transactions.base.text import counted
from onedispatch.transactions.format import spec
from onedispatch.transactions.format.builder import TransactionBuilder, tile_address
from onedispatch.transactions.machine import registers
from onedispatch.transactions.packets import packet_text
from onedispatch.transactions.packets.packet import OPERATIONS, PATCH_BYTES, ControlPacket, Key, Patch
from onedispatch.transactions.text.operands import read_lines

USUAL_ARGUMENT = 4
"""The kernel argument of the packets if the meta file names no other."""
_SHIM_ID, _MEM_ID = 1, 2
PacketTiles = Mapping[Key, tuple[int, int]]


@guarded
@dataclass(frozen=True)
class ControlPackets:
    """A blob and its patches.

    Attributes:
        argument: the kernel argument in which the host passes the blob.
        base: byte of that argument at which the blob starts.
    """

    packets: tuple[ControlPacket, ...]
    patches: tuple[Patch, ...] = ()
    argument: int = USUAL_ARGUMENT
    base: int = 0

    @classmethod
    def from_bytes(cls, data: bytes, meta: str | bytes | None = None) -> ControlPackets:
        """Decodes a blob, and its meta JSON if given.

        Raises:
            TransactionError: the blob ends inside a packet, the JSON has no known form, or a
                patch covers no data words.
        """
        if len(data) % 4:
            raise TransactionError(
                "control packets", counted(len(data), "byte"), "a multiple of 4", "copy the file again"
            )
        words = struct.unpack(f"<{len(data) // 4}I", data)
        packets: list[ControlPacket] = []
        at = 0
        while at < len(words):
            control = words[at + 1] if at + 1 < len(words) else 0
            beats = 0 if control >> 22 & 3 == 1 else (control >> 20 & 3) + 1
            if at + 2 + beats > len(words):
                raise TransactionError(
                    "control packets", f"{counted(len(words) - at, 'word')} at the end",
                    f"{2 + beats}, a whole packet",
                    "is this a control packet file?", op_index=len(packets), byte_offset=4 * at,
                )  # fmt: skip
            packets.append(ControlPacket(words[at], control, words[at + 2 : at + 2 + beats]))
            at += 2 + beats
        found = cls(tuple(packets), *(_parsed(meta) if meta is not None else ()))
        found.patched_words()
        return found

    def to_bytes(self) -> bytes:
        """Encodes the blob; decoding and encoding is lossless."""
        words = [word for packet in self.packets for word in (packet.header, packet.control, *packet.data)]
        return struct.pack(f"<{len(words)}I", *words)

    def meta(self) -> str:
        """Returns the patches as JSON, in the form of AMD's files."""
        entries = [
            {"offset": p.offset, "size": p.size, "xrt_arg_idx": p.argument, "bo_offset": p.bo_offset}
            | ({"operation": "read_add_write"} if p.adds else {})
            for p in self.patches
        ]
        data: dict[str, Any] = {"version": "1.0", "ctrl_pkt_patch_info": entries}
        if (self.argument, self.base) != (USUAL_ARGUMENT, 0):
            data["ctrl_pkt_buffer"] = {"xrt_arg_idx": self.argument, "bo_offset": self.base}
        return json.dumps(data, indent=2) + "\n"

    def part(self, indices: Sequence[int]) -> ControlPackets:
        """Returns some of the packets, in the given order, with their patches."""
        patched = self.patched_words()
        packets, patches, at = [], [], 0
        for index in indices:
            packet = self.packets[index]
            for word in range(len(packet.data)):
                patch = patched.get((index, word))
                if patch is not None:
                    patches.append(dataclasses.replace(patch, offset=at + 8 + 4 * word))
            packets.append(packet)
            at += packet.size
        return ControlPackets(tuple(packets), tuple(patches), self.argument, self.base)

    def patched_words(self) -> dict[tuple[int, int], Patch]:
        """Returns (packet, data word) -> patch.

        Raises:
            TransactionError: a patch does not cover two data words of one packet.
        """
        starts, at = {}, 0
        for index, packet in enumerate(self.packets):
            for word in range(len(packet.data) - 1):
                starts[at + 8 + 4 * word] = (index, word)
            at += packet.size
        found = {}
        for patch in self.patches:
            place = starts.get(patch.offset)
            if place is None or patch.size != PATCH_BYTES:
                raise TransactionError(
                    "control packet patch", f"{counted(patch.size, 'byte')} at {patch.offset}",
                    f"{PATCH_BYTES} bytes on two data words of one packet",
                    "does the JSON belong to this blob?", byte_offset=patch.offset,
                )  # fmt: skip
            found[place] = patch
        return found

    def tiles(self) -> dict[Key, tuple[int, int]]:
        """Returns (packet id, column) -> tile, inferred from the registers that the packets write.

        Strix overlays of four columns and more use id 1 (shim) or 2 (memory tile) and the column
        in the header. Other overlays number the ids per kind of tile: memory tiles by column, cores
        from row 2 of column 0 upwards, shims from the last column down. (Only with this numbering
        does the host's last wait match the lock that the output releases, and no packet write a BD
        of the chain that sends it.)
        """
        kinds: dict[Key, set[str]] = {}
        for packet in self.packets:
            kinds.setdefault(packet.key, set()).add(_kind(packet.offset))
        usual = {_SHIM_ID: {"shim"}, _MEM_ID: {"mem"}}
        if all(key[0] in usual and found <= usual[key[0]] for key, found in kinds.items()):
            return {key: (key[1], key[0] - _SHIM_ID) for key in kinds}
        of: dict[str, list[Key]] = {"shim": [], "mem": [], "core": []}
        for key, found in sorted(kinds.items()):
            # Shims and cores have their BDs at the same offsets; only other registers distinguish them.
            of[next((kind for kind in ("mem", "core", "shim") if kind in found), "shim")].append(key)
        rows = spec.ARRAY_ROWS - registers.FIRST_CORE_ROW  # core rows of AMD's arrays
        return {
            **{key: (column, registers.SHIM_ROW) for column, key in enumerate(reversed(of["shim"]))},
            **{key: (column, registers.MEM_ROW) for column, key in enumerate(of["mem"])},
            **{key: (n // rows, registers.FIRST_CORE_ROW + n % rows) for n, key in enumerate(of["core"])},
        }

    def to_transaction(self, tiles: PacketTiles | None = None, columns: int = 0) -> Transaction:
        """Converts the packets to a transaction; consecutive writes are merged.

        Args:
            tiles: the tiles of the packets; ``tiles()`` if None.
            columns: columns of the partition; as many as the packets need if 0.

        Raises:
            TransactionError: a packet reads, or its tile is unknown.
        """
        where = self.tiles() if tiles is None else tiles
        columns = columns or max([column + 1 for column, _ in where.values()], default=1)
        made = TransactionBuilder(4, columns)
        patched = self.patched_words()
        runs: list[tuple[int, list[int], list[tuple[int, Patch]]]] = []
        for index, packet in enumerate(self.packets):
            target = where.get(packet.key)
            if target is None or packet.fields["operation"] != 0 or packet.offset % 4:
                raise TransactionError(
                    f"control packet {index}", f"{OPERATIONS[packet.fields['operation']]} to {packet.key}",
                    f"writes to {', '.join(map(str, sorted(where)))}", "pass tiles= for this overlay",
                    op_index=index,
                )  # fmt: skip
            address = tile_address(*target, packet.offset)
            if not (runs and _continues(runs[-1], address, packet)):
                runs.append((address, [], []))
            start, words, patches = runs[-1]
            for word in range(len(packet.data)):
                if (index, word) in patched:
                    patches.append((start + 4 * (len(words) + word), patched[index, word]))
            words += packet.data
        for start, words, patches in runs:
            _emit(made, start, words, patches)
        return Transaction.from_bytes(made.to_bytes())

    def relocated(self, args: Sequence[ArgMap], bindings: Bindings) -> ControlPackets:
        """Relocates the patches to the fused arguments, by the rule of ``fuse``.

        Raises:
            TransactionError: a patch is outside every region of the arg map.
        """
        where = "control packet patch"
        moved = [relocated(where, args, bindings, p.argument, p.bo_offset) for p in self.patches]
        patches = [
            dataclasses.replace(patch, argument=argument, bo_offset=offset)
            for patch, (argument, offset) in zip(self.patches, moved, strict=True)
        ]
        return dataclasses.replace(self, patches=tuple(patches))

    def findings(self) -> list[Finding]:
        """Returns the findings on packet headers, by packet and byte."""
        found, at = [], 0
        for index, packet in enumerate(self.packets):
            found += [Finding(FindingKind.FORMAT, index, at, problem) for problem in packet.problems()]
            at += packet.size
        return found

    def text(self) -> str:
        """Returns one line per packet; ``from_text`` reads it back."""
        return packet_text.text(self.packets, self.patched_words(), self.tiles())

    @classmethod
    def from_text(cls, text: str) -> ControlPackets:
        """Parses the output of ``text()``, or text written by hand.

        Raises:
            TransactionError: a line is invalid; the error names it.
        """
        reader = packet_text.PacketReader()
        read_lines(text, reader)
        packets = tuple(ControlPacket(*packet) for packet in reader.packets)
        patches = tuple(Patch(*patch[:3], adds=patch[3]) for patch in reader.patches)
        found = cls(packets, patches)
        found.patched_words()
        return found


def _continues(
    run: tuple[int, list[int], list[tuple[int, Patch]]], address: int, packet: ControlPacket
) -> bool:
    """True if a packet continues a run of whole BD halves."""
    start, words, _ = run
    return start + 4 * len(words) == address and len(packet.data) == 4 and len(words) % 4 == 0


def _emit(made: TransactionBuilder, start: int, words: list[int], patches: list[tuple[int, Patch]]) -> None:
    if len(words) == 1:
        made.write(start, words[0])
    else:
        made.blockwrite(start, words)
    for address, patch in patches:
        offset = patch.bo_offset
        if patch.adds:
            at = (address - start) // 4
            offset += words[at] | (words[at + 1] & 0xFFFF) << 32
        made.ddr_patch(address, patch.argument, offset)


def _kind(offset: int) -> str:
    """Returns the kind of tile that has a register at the offset; "shim" if a core has one too."""
    if offset >= 0x80000:
        return "mem"
    if 0x1D000 <= offset < 0x1D240 or 0x14000 <= offset < 0x14100:
        return "shim"
    return "core"


# --- Meta files ---------------------------------------------------------------------------------


def read_meta(text: str | bytes) -> tuple[Patch, ...]:
    """Returns the patches of a meta file, in either form of AMD's files.

    Raises:
        TransactionError: the text is not JSON, or has another form.
    """
    return _parsed(text)[0]


def _parsed(text: str | bytes) -> tuple[tuple[Patch, ...], int, int]:
    """Parses (patches, argument of the packets, first byte in it)."""
    argument, base = USUAL_ARGUMENT, 0
    try:
        data = json.loads(text)
        if "ctrl_pkt_patch_info" in data:
            where = data.get("ctrl_pkt_buffer", {"xrt_arg_idx": argument, "bo_offset": base})
            argument, base = _natural(where["xrt_arg_idx"]), _natural(where["bo_offset"])
            entries = [
                (e["offset"], e["xrt_arg_idx"], e["bo_offset"], e["size"], e.get("operation", ""))
                for e in data["ctrl_pkt_patch_info"]
            ]
        else:
            buffers = list(data["external_buffers"].values())
            entries = [entry for buffer in buffers for entry in _external(buffer)]
            mine = [buffer["xrt_id"] for buffer in buffers if buffer.get("ctrl_pkt_buffer")]
            argument = _natural(mine[0]) if mine else argument
        patches = tuple(
            Patch(_natural(at), _natural(index), _natural(offset), _natural(size), adds == "read_add_write")
            for at, index, offset, size, adds in entries
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TransactionError(
            "control packet JSON", f"{type(error).__name__}: {error}"[:200],
            "ctrl_pkt_patch_info: [{offset, size, xrt_arg_idx, bo_offset}], or external_buffers",
            "is this the *_ctrl_meta.json of the blob?",
        ) from error  # fmt: skip
    return patches, argument, base


def _external(buffer: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
    for part in (buffer, *buffer.get("coalesed_buffers", ())):
        for place in part.get("control_packet_patch_locations", ()):
            base = part.get("offset_in_bytes", 0)
            yield place["offset"], buffer["xrt_id"], base, place["size"], place.get("operation", "")


def _natural(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 48:
        raise ValueError(f"{value!r:.40} is no number from 0 to 2**48")
    return value
