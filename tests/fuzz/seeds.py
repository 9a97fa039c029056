# SPDX-License-Identifier: Apache-2.0
"""What fuzzing starts from, made when it is needed: nothing binary lies in the repository.

    python -m tests.fuzz.seeds build/fuzz/seeds

One folder per form of input; ``targets.TARGETS`` and ``campaign.CPP`` say which one a target takes.
AMD's samples are added where they are present (see tests/replay).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf import text_format
from onnx import helper

from onedispatch.dispatch.driver.compile_model import compile_model
from onedispatch.operators.emission.overlay import overlay_transaction
from onedispatch.transactions import (
    ControlPackets,
    CoreBd,
    MemBd,
    OneDispatchError,
    ShimBd,
    Transaction,
    TransactionBuilder,
    Xclbin,
    find_device,
    fuse,
    queue_word,
    tile_address,
)
from onedispatch.transactions.format import codec, spec
from onedispatch.transactions.machine import bd
from onedispatch.transactions.packets.packet import ControlPacket, Patch
from tests.cpp.make_cases import only_operator
from tests.fuzz import recordings, rule_files
from tests.fuzz.mutate import join_parts
from tests.ops.case import case, f32
from tests.tensorflow.grown import Grown
from tests.tensorflow.networks import NETWORKS

ROOT = Path(__file__).resolve().parents[2]
GRAPHS = 20  # random GraphDefs
MODELS = 40  # random models; their seeds say nothing of what is in them
SMALL_FILE = 6000
"""Bytes of AMD's files that are taken; the others say the same at greater length."""
SHIM_BD, MEM_BD, CORE_BD = 0x1D000, 0xA0000, 0x1D000


def everything(version: spec.Version) -> bytes:
    """Every opcode once, with fields that are not zero."""
    made = codec.Header(version, columns=2)
    ops = []
    for number, code in enumerate((*spec.BY_CODE, 135, 255)):
        layout = codec.layout_of(code, version)
        values = {field.name: number + 1 for field in layout.fields}
        if "reg" in values:
            values["reg"] = tile_address(number % 2, number % 6, 0x1D004)
        payload = bytes(range(8 * layout.payload_width)) if layout.payload_at is not None else b""
        ops.append(codec.encode_op(code, version, values, payload))
    body = b"".join(ops)
    size = spec.HEADER_SIZE + len(body)
    header = codec.Header(version, made.device_generation, made.rows, 2, made.mem_tile_rows, len(ops), size)
    return header.to_bytes() + body


def moves(version: spec.Version, generation: int = 4) -> bytes:
    """Tasks of all kinds of tiles: chains, locks, repeats, padding, patches, polls, tokens."""
    made = TransactionBuilder(generation, 2, version)
    shim = ShimBd.at(0, 256, [(1, 16), (64, 16)], acquire=(1, -1))
    for index, (argument, queue) in enumerate(((1, 0x1D214), (0, 0x1D204), (5, 0x1D21C))):
        at = tile_address(0, 0, SHIM_BD + 0x20 * index)
        made.blockwrite(at, shim.to_words())
        made.ddr_patch(at + 4, argument, 0x400 * index)
        made.write(tile_address(0, 0, queue), queue_word("shim", index, 2, token=True))
    for index in (0, 24):
        words = MemBd.at(64, 32, [(1, 4), (8, 8)], acquire=(0, 0), release=(1, 1)).to_words()
        made.blockwrite(tile_address(0, 1, MEM_BD + 0x20 * index), words)
    made.write(tile_address(0, 1, 0xA0604), queue_word("mem", 0, 3))
    made.write(tile_address(0, 1, 0xA063C), queue_word("mem", 24, 3))
    made.write(tile_address(0, 1, 0xC0000), 1)
    made.blockwrite(tile_address(0, 2, CORE_BD), CoreBd.at(64, 8).to_words())
    made.write(tile_address(0, 2, 0x1DE04), queue_word("core", 0))
    made.maskwrite(tile_address(0, 1, 0xA0600), 2, 2)
    made.maskpoll(tile_address(1, 2, 0x43BFC), 1, 1)
    made.blockwrite(tile_address(1, 2, 0x4880), [0x66660001, 0x1D000, 1, 0x1D004, 2, *range(20)])
    made.write(tile_address(0, 1, 0xB0000), bd.circuit_master(9))
    made.maskpoll(tile_address(0, 0, 0x1D228), 0, 0x78003C)
    made.tct("S2MM", 0, 0, 0, columns=2)
    made.record_timer(7)
    return made.to_bytes()


@cache
def overlays() -> Mapping[str, bytes]:
    return {name: overlay_transaction(find_device(name)) for name in ("npu1_1col", "npu2_1col")}


@cache
def operators() -> Mapping[str, bytes]:
    """Our operators for one column, small."""
    made = {}
    for device in overlays():
        for op, inputs in (
            ("Add", (f32(3, 5), f32(3, 5))),
            ("MatMul", (f32(3, 4), f32(4, 5))),
            ("Softmax", (f32(2, 6),)),
            ("Transpose", (f32(4, 6),)),
        ):
            (one,) = case(op, *inputs).on(device)
            made[f"{op}_{device}"] = only_operator(one).transaction()
    return made


@cache
def transactions() -> Mapping[str, bytes]:
    """Transactions of both versions."""
    made: dict[str, bytes] = {f"everything{v[0]}": everything(v) for v in spec.VERSIONS}
    made |= {f"moves{v[0]}": moves(v) for v in spec.VERSIONS} | {"moves_npu1": moves(spec.V0_1, 3)}
    made |= {"empty": TransactionBuilder(4, 1).to_bytes(), "overlay": overlays()["npu2_1col"], **operators()}
    made |= {f"{name}_v1": Transaction.from_bytes(data).converted(spec.V1_0).to_bytes()
             for name, data in operators().items()}  # fmt: skip
    return made | {name: data for name, data in samples(".bin") if len(data) <= SMALL_FILE}


def runs() -> Iterator[tuple[str, bytes]]:
    """Overlay and operator in one transaction, for a partition that starts bare."""
    for name, data in operators().items():
        overlay = overlays()[name.partition("_")[2]]
        first = Transaction.from_bytes(overlay)
        yield name, fuse([first, Transaction.from_bytes(data).converted(first.version)]).to_bytes()
    yield from overlays().items()
    yield from ((f"moves{v[0]}", moves(v)) for v in spec.VERSIONS)


def packets() -> ControlPackets:
    words = MemBd.at(64, 32).to_words()
    made = [
        ControlPacket.write(1, 0, SHIM_BD, [64, 0x400, 0, 0]),
        ControlPacket.write(1, 0, SHIM_BD + 16, [0, 0, 0, 1 << 25]),
        ControlPacket.write(2, 0, MEM_BD, words[:4]),
        ControlPacket.write(2, 0, MEM_BD + 16, words[4:]),
        ControlPacket.write(2, 0, 0xA0604, [0]),
    ]
    return ControlPackets(tuple(made), (Patch(12, 2, 0x100),))


def controls() -> Iterator[tuple[str, bytes, bytes]]:
    """(name, meta JSON, packets)"""
    own = packets()
    yield "own", own.meta().encode(), own.to_bytes()
    yield "none", b"", own.to_bytes()
    buffer = {"xrt_id": 2, "control_packet_patch_locations": [{"offset": 12, "size": 6}]}
    buffer["coalesed_buffers"] = [{"offset_in_bytes": 8, "control_packet_patch_locations": []}]
    yield "buffers", json.dumps({"external_buffers": {"a": buffer}}).encode(), own.to_bytes()
    metas = dict(samples("_ctrl_meta.json"))
    for name, blob in samples("_ctrl.bin"):
        described = metas.get(name, b"")
        if len(blob) + len(described) <= 2 * SMALL_FILE:
            yield name, described, blob


def fuse_maps() -> Iterator[tuple[str, bytes]]:
    row = {"xrt_arg_idx": 0, "offset": 0, "size": 1 << 16}
    kinds = ("OUTPUT", "INPUT", "CONST_INPUT", "CONST_KERNEL_PARAM_INPUT", "SCRATCH_PAD", "CTRL_PKT_BIN")
    args = [{**row, "kind": kind, "xrt_arg_idx": i, "onnx_arg_idx": i} for i, kind in enumerate(kinds)]
    part = {"file": "a.bin", "args": args}
    bound = {**part, "bindings": {"tensors": {"0": [1, 0], "1": [0, 64]}, "const": 64, "in_place": True}}
    maps: dict[str, object] = {
        "bare": {"parts": [{"file": "a.bin"}, {"file": "a.bin"}]},
        "plan": {"parts": [part], "outputs": ["y"], "control_argument": 4},
        "bound": {"parts": [bound], "sizes": {"0": 1 << 18, "1": 1 << 18, "5": 1 << 16}},
    }
    for name, value in maps.items():
        yield name, join_parts(json.dumps(value).encode(), moves(spec.V0_1))


def samples(ending: str) -> Iterator[tuple[str, bytes]]:
    """AMD's public files with this ending, by name without it; none where they are absent."""
    shared = Path(os.environ.get("ONEDISPATCH_SHARED", ROOT.parent / "shared"))
    for path in sorted((shared / "data").glob(f"amd-transactions*/**/*{ending}")):
        if ending != ".bin" or not path.name.endswith(("_param.bin", "_ctrl.bin")):
            yield path.name.removesuffix(ending), path.read_bytes()


def texts() -> Iterator[tuple[str, bytes]]:
    for name, data in transactions().items():
        try:
            yield name, Transaction.from_bytes(data).text().encode()
        except OneDispatchError:
            continue
    yield "by_hand", b"HEADER v1.0 columns=2 rows=6 device_generation=4 mem_tile_rows=1\nNOOP ; nothing\n"


def containers() -> Iterator[tuple[str, bytes]]:
    for name, data in overlays().items():
        yield name, Xclbin(name, {0: data, 7: TransactionBuilder(4, 1).to_bytes()}).to_bytes()


def compiled_models() -> Iterator[tuple[str, bytes]]:
    """On the device, on both sides, with open shapes, with a subgraph and strings on the host."""
    node, info = helper.make_node, helper.make_tensor_value_info
    x, y = info("x", 1, [2, 4]), info("y", 1, [2, 4])
    branches = {
        f"{which}_branch": helper.make_graph([node(op, ["x"], ["b"])], which, [], [info("b", 1, [2, 4])])
        for which, op in (("then", "Relu"), ("else", "Sin"))
    }
    words = node("Constant", [], ["s"], value_strings=["a", "b"])
    open_x, open_y = info("x", 1, ["N", 4]), info("y", 1, ["N", 4])
    for name, nodes, inputs, outputs in (
        ("device", [node("Relu", ["x"], ["y"])], [x], [y]),
        (
            "both",
            [node("Relu", ["x"], ["a"]), node("Sin", ["a"], ["b"]), node("Neg", ["b"], ["y"])],
            [x],
            [y],
        ),
        ("open", [node("Relu", ["x"], ["a"]), node("Sin", ["a"], ["y"])], [open_x], [open_y]),
        (
            "branch",
            [node("If", ["c"], ["y"], **branches), words],
            [info("c", 9, []), x],
            [y, info("s", 8, [2])],
        ),
    ):
        model = helper.make_model(
            helper.make_graph(nodes, name, inputs, outputs),
            opset_imports=[helper.make_opsetid("", 17)],
            ir_version=8,
        )
        with TemporaryDirectory(prefix="onedispatch-fuzz-") as folder:
            path = Path(folder) / "m.od"
            compile_model(model, device="npu2_1col").save(path)
            yield name, path.read_bytes()


@cache
def graphdefs() -> Mapping[str, Any]:
    """Random GraphDefs, and networks whose weights are one value each."""
    made = {f"random{seed}": Grown(seed).b.graphdef() for seed in range(GRAPHS)}
    for name, network in NETWORKS.items():
        made[name] = network()[0]
        for tensor in (node.attr["value"].tensor for node in made[name].node if node.op == "Const"):
            if len(tensor.tensor_content) > 64:
                tensor.tensor_content = b""
                tensor.float_val.append(0.5)
    return made


def graphdef_texts() -> Iterator[tuple[str, bytes]]:
    """Of those that are short enough."""
    for name, graphdef in graphdefs().items():
        text = text_format.MessageToString(graphdef).encode()
        if len(text) <= 2 * SMALL_FILE:
            yield name, text


def corpora() -> dict[str, dict[str, bytes]]:
    """Every folder's inputs by name."""
    all_of = transactions()
    rows = list(controls())
    small = {name: data for name, data in all_of.items() if len(data) < 2 * SMALL_FILE}
    pairs = zip(small, [*list(small)[1:], next(iter(small))], strict=True)
    return {
        "transactions": dict(all_of),
        "texts": dict(texts()),
        "pairs": {f"{a}-{b}": join_parts(small[a], small[b]) for a, b in pairs},
        "control": {name: join_parts(described, blob) for name, described, blob in rows},
        "meta": {name: described for name, described, _ in rows if described},
        "packets": {name: b"\0" + blob for name, _, blob in rows},
        "fuse": dict(fuse_maps()),
        "containers": dict(containers()),
        "compiled": dict(compiled_models()),
        "replays": {name: join_parts(data, b"") for name, data in small.items()}
        | {"packets": join_parts(moves(spec.V0_1), packets().to_bytes())},
        "graphdefs": {name: one.SerializeToString(deterministic=True) for name, one in graphdefs().items()},
        "graphdef-texts": dict(graphdef_texts()),
        "rules": rule_files.seeds(),
        "changes": recordings.seeds(),
        "runs": dict(runs()),
        "models": {f"model{i}": f"model {i}".encode() for i in range(MODELS)},
    }


def write(folder: Path) -> None:
    for kind, inputs in corpora().items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for name, data in inputs.items():
            (folder / kind / name).write_bytes(data)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
