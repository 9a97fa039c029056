# SPDX-License-Identifier: Apache-2.0
"""Devices, the overlay container, the exception tree, what is generated."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onedispatch.transactions import (
    CompiledModelError,
    DeviceError,
    InputError,
    ModelError,
    OneDispatchError,
    SimulationError,
    Transaction,
    TransactionBuilder,
    TransactionError,
    UnsupportedModelError,
    Xclbin,
    device_names,
    find_device,
)
from onedispatch.transactions.codegen import genheader, genreadme
from onedispatch.transactions.machine.device import read_description
from tests.devices import device_file

# --- devices ------------------------------------------------------------------------------------


def test_devices_and_partitions() -> None:
    names = device_names()
    assert {"npu1", "npu2", "phoenix", "strix"} <= set(names)
    assert [n for n in names if n.startswith("npu1_")] == [f"npu1_{i}col" for i in (1, 2, 3)]
    assert [n for n in names if n.startswith("npu2_")] == [f"npu2_{i}col" for i in range(1, 8)]
    whole, part = find_device("npu2"), find_device("npu2_4col")
    assert (whole.columns, whole.core_rows, whole.device_generation) == (8, 4, 4)
    assert (part.name, part.columns, part.constants) == ("npu2_4col", 4, whole.constants)
    assert find_device("strix") is whole and find_device("phoenix").name == "npu1"
    assert find_device("npu1").device_generation == 3 and find_device("npu1").columns == 4
    assert whole.constant("clock.array_mhz") > find_device("npu1").constant("clock.array_mhz")


def test_devices_are_values() -> None:
    device = find_device("npu2_2col")
    assert pickle.loads(pickle.dumps(device)) == device
    assert hash(device) == hash(pickle.loads(pickle.dumps(device)))
    other = device.with_constants(clock__array_mhz=1000)
    assert other.constant("clock.array_mhz") == 1000 and other != device


def test_strings_of_a_description_are_no_constants(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[device]\nbase = 'npu1'\n[clock]\narray_mhz = 5\nnote = 'guess'\n")
    device, alias = read_description(tmp_path / "own.toml")
    assert dict(device.constants) == {**find_device("npu1").constants, "clock.array_mhz": 5.0}
    assert (device.name, device.columns, device.xrt_name, alias) == ("own", 4, "RyzenAI-npu1", "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[device]\nbase = 'npu9'\n", "base = 'npu9'; accepted: npu1"),
        ("[device]\nbase = 'npu2'\nxrt_name = 'a\"b'\n", "device.xrt_name"),
        ("[device]\nbase = 'npu2'\n[clock]\narray_mhz = true\n", "clock.array_mhz = True"),
        ("[device]\nbase = 'npu2'\n[clock.more]\narray_mhz = 1\n", "clock.more"),
        ("[device]\nbase = 'npu2'\n[clock]\narray_mhz = inf\n", "clock.array_mhz = inf"),
        ("columns = 4\n", "columns outside a section"),
        ("[device]\nname = 'x'\n", "no device.columns"),
    ],
)
def test_files_that_say_something_else(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(DeviceError, match=r"bad\.toml") as caught:
        find_device(tmp_path / "bad.toml")
    assert says in str(caught.value)


def test_names_of_files(tmp_path: Path) -> None:
    for name in ("mine_2col", "a" * 30, "ünü", ""):
        with pytest.raises(DeviceError, match=r"the name|accepted"):
            find_device(device_file(tmp_path, name, {}))
    with pytest.raises(DeviceError, match="bytes"):
        (tmp_path / "long.toml").write_bytes(b"#" * (1 << 20 | 1))
        find_device(tmp_path / "long.toml")


def test_device_errors(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="npu2_7col"):
        find_device("npu9")
    with pytest.raises(
        DeviceError, match=r"given Device\(name='npu2', columns=8, .*; accepted: npu1"
    ) as caught:
        find_device(find_device("npu2"))  # type: ignore[arg-type]
    assert len(str(caught.value)) < 500
    with pytest.raises(DeviceError, match=r"clock\.array_mhz"):
        find_device("npu1").constant("clock.nothing")
    with pytest.raises(DeviceError, match="source"):
        find_device("npu1").with_constants(nothing=1.0)
    with pytest.raises(DeviceError, match=r"none\.toml"):
        read_description(tmp_path / "none.toml")
    for text in (
        "not toml [",
        "[device]\ncolumns = 4\n",
        "[device]\ncolumns = 4\ncore_rows = 4\ndevice_generation = 3\nxrt_name = 'x'\n[clock]\nmhz = [1]\n",
    ):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(DeviceError, match=r"bad\.toml"):
            read_description(tmp_path / "bad.toml")


# --- xclbin -------------------------------------------------------------------------------------


def pdi(words: int = 0) -> bytes:
    made = TransactionBuilder(4, 4)
    for i in range(words):
        made.write(4 * i, i)
    return made.to_bytes()


@given(
    st.dictionaries(st.integers(1, 65535), st.integers(0, 5), max_size=4),
    st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=20), max_size=3),
)
def test_xclbin_round_trip(ids: dict[int, int], more: list[str]) -> None:
    pdis = {0: pdi(1), **{i: pdi(n) for i, n in ids.items()}}
    made = Xclbin("npu2_4col", pdis, ("MLIR_AIE", *(f"k{name}" for name in more)))
    read = Xclbin.from_bytes(made.to_bytes())
    assert read == made and read.uuid == made.uuid and dict(read.pdis) == pdis


def test_uuid_depends_on_content_alone() -> None:
    assert Xclbin("npu2", {0: pdi()}).uuid == Xclbin("npu2", {0: pdi()}).uuid
    contents = ({0: pdi()}, {0: pdi(1)}, {0: pdi(), 1: pdi()})
    uuids = {Xclbin(device, content).uuid for device in ("npu1", "npu2") for content in contents}
    assert len(uuids) == 6 and all(len(uuid) == 16 for uuid in uuids)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Xclbin("npu2", {}), "0 among them"),
        (lambda: Xclbin("npu2", {0: pdi(), 65536: pdi()}), "ids 0 to 65535"),
        (lambda: Xclbin("npu2", {0: b"short"}), "a whole transaction"),
        (lambda: Xclbin("npu2", {0: pdi() + b"1234"}), "header says 16"),
        (lambda: Xclbin("npu2", {0: pdi()}, ("DPU",)), "MLIR_AIE"),
        (lambda: Xclbin("npu2", {0: pdi()}, ()), "MLIR_AIE"),
        (lambda: Xclbin("n" * 32, {0: pdi()}).to_bytes(), "1 to 31 bytes"),
        (lambda: Xclbin("npu2", {0: pdi()}, ("MLIR_AIE" * 8,)).to_bytes(), "1 to 63 bytes"),
        (lambda: Xclbin.from_bytes(b"xclbin2\0" * 20), "ODXCLBIN"),
        (lambda: Xclbin.from_bytes(b"ODXCLBIN"), "fewer than"),
        (lambda: Xclbin.from_bytes(Xclbin("npu2", {0: pdi()}).to_bytes()[:-1]), "of a container of"),
        (lambda: Xclbin.from_bytes(b"ODXCLBIN\2" + Xclbin("npu2", {0: pdi()}).to_bytes()[9:]), "version 2"),
    ],
)
def test_xclbin_errors(make: Callable[[], object], says: str) -> None:
    with pytest.raises(CompiledModelError) as caught:
        make()
    assert says in str(caught.value)


@given(st.data())
def test_a_damaged_xclbin_is_refused(data: st.DataObject) -> None:
    whole = bytearray(Xclbin("npu2", {0: pdi(2), 3: pdi(1)}, ("MLIR_AIE", "second")).to_bytes())
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CompiledModelError):
        Xclbin.from_bytes(bytes(whole))


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cls",
    [
        ModelError,
        UnsupportedModelError,
        InputError,
        TransactionError,
        SimulationError,
        DeviceError,
        CompiledModelError,
    ],
)
def test_errors_have_four_parts_and_cross_processes(cls: type[OneDispatchError]) -> None:
    error = cls("here", "this", "that", "do it.")
    assert str(error) == "here: given this; accepted: that. Do it."
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls and str(copy) == str(error) and vars(copy) == vars(error)
    assert str(cls("only where")) == "only where"


def test_errors_carry_places() -> None:
    error = TransactionError("w", op_index=3, byte_offset=20)
    assert str(error) == "w (op 3, byte 20)"
    simulation = SimulationError("w", op_index=0, tile="c1 r2", register="DMA_BD[3]")
    copy = pickle.loads(pickle.dumps(simulation))
    assert str(copy) == "w (op 0)" and (copy.tile, copy.register) == ("c1 r2", "DMA_BD[3]")
    nodes = UnsupportedModelError("model", nodes=["a: because", "b: because"])
    assert str(nodes).splitlines() == ["model", "  a: because", "  b: because"]


# --- generated ----------------------------------------------------------------------------------


def test_headers_are_current(repository: Path) -> None:
    for name, text in genheader.headers().items():
        committed = (repository / "cpp_ext" / "include" / "onedispatch" / name).read_text()
        assert committed == text, f"run python -m onedispatch.transactions.codegen.genheader ({name})"


def test_readme_table_is_current(repository: Path) -> None:
    readme = (repository / "transactions" / "README.md").read_text()
    assert genreadme.updated(readme) == readme, "run python -m onedispatch.transactions.codegen.genreadme"
    assert "| 134 |" in readme


def test_a_transaction_is_no_side_file() -> None:
    with pytest.raises(TransactionError, match="Parameter and control packet files are not"):
        Transaction.from_bytes(bytes(64))
