# SPDX-License-Identifier: Apache-2.0
"""Text: what is listed assembles to the same bytes; what cannot be read is refused by line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onedispatch.transactions import Transaction, TransactionBuilder, TransactionError, tile_address
from onedispatch.transactions.format import spec

SIDE_FILES = ("_param.bin", "_ctrl.bin")
HEADER = "HEADER v0.1 device_generation=4 rows=6 columns=4 mem_tile_rows=1\n"


@pytest.mark.amd_data
def test_amd_files_assemble_to_the_same_bytes(amd_files: list[Path]) -> None:
    read = 0
    for path in amd_files:
        if path.name.endswith(SIDE_FILES):
            continue
        transaction = Transaction.from_bytes(path.read_bytes())
        for version in spec.VERSIONS:
            same = transaction.converted(version)
            text = same.text()
            assert Transaction.from_text(text) == same, path.name
            assert Transaction.from_text(text).text() == text
        read += 1
    assert read


def assembled(lines: str) -> Transaction:
    return Transaction.from_text(HEADER + lines)


def test_people_write_without_index_and_offset() -> None:
    read = assembled(
        """
        ; shim 0 sends 64 words of argument 1
        BLOCKWRITE  c0 r0 DMA_BD[2]
            bd 2: length=64 d0_wrap=8 d1_step=16
        DDR_PATCH   c0 r0 DMA_BD[2]+0x4  arg 1 + 0x40
        WRITE       c0 r0 DMA_MM2S_QUEUE[0]  start_bd=2 repeat=3
        WRITE       c0 r0 DMA_MM2S_QUEUE[0]  0x80000002
        MASKPOLL    c0 r0 DMA_MM2S_STATUS[0] idle   ; done
        TCT         c0 r0 MM2S[0]
        CUSTOM_140  payload=00112233
        """
    )
    assert [op.name for op in read.ops][-2:] == ["TCT", "CUSTOM_140"]
    assert read.ops[2].value == 2 << 16 | 2 and read.ops[3].value == 1 << 31 | 2
    assert read.ops[1].arg_offset == 0x40 and read.ops[0].words[0] == 64
    assert read.validate()[0].op_index == 6  # the unknown opcode only


def test_what_has_no_decoded_form_survives() -> None:
    made = TransactionBuilder(4, 4)
    made.write(tile_address(0, 0, 0x1D204), 0x00000FF0)  # reserved bits of a queue word
    made.write(tile_address(0, 1, 0xB0000), 0xC0000093)
    made.blockwrite(tile_address(0, 2, 0x1D000), [0xFFFFFFFF] * 13)  # core BD, two words between, a part
    made.blockwrite(tile_address(0, 0, 0x1D004), [1, 2])
    made.maskwrite(tile_address(0, 1, 0xD0200), 3, 7)
    made.op("TCT", word=9, config=0)
    made.op("TCT", word=1 << 24, config=1)
    made.op("READ_REGS", bytes(8), count=1)
    made.op("BLOCKWRITE", reg=4)
    data = bytearray(made.to_bytes())
    data[6:8] = b"\x01\x02"
    data[17], data[23] = 7, 9
    read = Transaction.from_bytes(bytes(data))
    text = read.text()
    assert Transaction.from_text(text) == read
    assert "padding=513" in text and "pad=1:07000000000009" in text and "reserved[1]=0xffff" in text


def test_both_sizes_of_an_op_survive() -> None:
    lines = (
        "MASKPOLL c0 r1 LOCK_REQUEST[3] acquire -2 size=28\nMERGE_SYNC tokens=1 columns=4 size=12 pad=11:11\n"
    )
    read = assembled(lines)
    assert [op.size for op in read.ops] == [28, 12] and read.ops[1].raw[11] == 0x11
    assert Transaction.from_text(read.text()) == read


@pytest.mark.parametrize(
    ("lines", "number", "says"),
    [
        ("ADD 1", 2, "op ADD"),
        ("NOOP\nwhat", 3, "'what'"),
        ("HEADER v0.1", 2, "second HEADER"),
        ("WRITE c0 r0 LOCK_VALUE[16] 0x1", 2, "LOCK_VALUE[0] to [15]"),
        ("WRITE c0 r0 MEMORY 0x1", 2, "register MEMORY"),
        ("WRITE c0 r32 DMA_BD[0] 0x1", 2, "row 32"),
        ("WRITE c0 r0 LOCK_VALUE[1]", 2, "no value"),
        ("WRITE c0 r0 LOCK_VALUE[1] 99999999999999999999999", 2, "64 bits"),
        ("WRITE c0 r0 LOCK_VALUE[1] 0x1ffffffff", 2, "WRITE field value"),
        ("WRITE c0 r0 DMA_MM2S_QUEUE[0] start_bd=16", 2, "start_bd (op 0): given 16"),
        ("WRITE c0 r0 DMA_MM2S_QUEUE[0] start_bd=1 start_bd=2", 2, "twice"),
        ("NOOP\nBLOCKWRITE c0 r0 DMA_BD[0] 8 words\n\nNOOP", 3, "0 words"),
        ("BLOCKWRITE c0 r0 DMA_BD[0] 8 words", 2, "0 words"),
        ("BLOCKWRITE c0 r0 DMA_BD[0]\n bd 1: length=1", 3, "bd 1"),
        ("BLOCKWRITE c0 r0 DMA_BD[0]\n bd 0: lenght=1", 3, "lenght"),
        ("BLOCKWRITE c0 r0 DMA_BD[0]\n bd 0: reserved[0]=1", 3, "no field covers"),
        ("BLOCKWRITE c0 r0 MUX 97 words, crc 5da54350", 2, "--brief"),
        ("MASKPOLL c0 r0 MUX == 1 & 1 pad=8:01", 2, "no field covers"),
        ("MASKPOLL c0 r0 MUX acquire -1", 2, "lock request"),
        ("MASKPOLL c0 r0 MUX = 1 & 1", 2, "== value & mask"),
        ("MASKPOLL c0 r0 LOCK_REQUEST[0] acquire 64", 2, "value 64"),
        ("NOOP size=8", 2, "size=8"),
        ("NOOP payload=00000000", 2, "payload"),
        ("DDR_PATCH c0 r0 DMA_BD[0]+0x4", 2, "arg index + offset"),
        ("RECORD_TIMER", 2, "without id"),
        ("CUSTOM_129 payload=", 2, "op CUSTOM_129"),
        ("READ_REGS count=1 payload=0", 2, "whole words"),
        ("TCT c0 r0 S2MM", 2, "columns=1"),
    ],
)
def test_errors_name_the_line(lines: str, number: int, says: str) -> None:
    with pytest.raises(TransactionError, match=rf"^line {number}\b") as caught:
        assembled(lines)
    assert says in str(caught.value), str(caught.value)


def test_a_header_is_needed() -> None:
    for text, says in (("", "no HEADER"), ("NOOP\n", "NOOP first"), ("HEADER v7.0\n", "HEADER v7.0")):
        with pytest.raises(TransactionError, match=says):
            Transaction.from_text(text)


@given(st.text(alphabet=st.sampled_from("WRITEBLOCKc0r1 DMA_BD[]+x=\nlength:acquire;-&"), max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    for candidate in (text, HEADER + text):
        try:
            read = Transaction.from_text(candidate)
        except TransactionError:
            continue
        assert Transaction.from_text(read.text()) == read
