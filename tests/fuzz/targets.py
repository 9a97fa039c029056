# SPDX-License-Identifier: Apache-2.0
"""What is fuzzed in Python: one function per surface, bytes -> None.

A target returns when the input is read or refused by a ``OneDispatchError``. Any other exception,
a failed ``assert``, a hang or a memory blow-up is a finding.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from onedispatch.dispatch.artifact.loading import load
from onedispatch.dispatch.frontend.graph import Graph
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.dispatch.tensorflow.reader import read_graphdef
from onedispatch.dispatch.tools.replay import Packets, replay
from onedispatch.transactions import (
    ControlPackets,
    OneDispatchError,
    SimulationError,
    Transaction,
    Xclbin,
    find_device,
)
from onedispatch.transactions.analysis.check import check_bytes
from onedispatch.transactions.analysis.picture import svg
from onedispatch.transactions.base.errors import InternalError
from onedispatch.transactions.format.spec import V0_1, V1_0
from onedispatch.transactions.fusion.fusemap import fuse_map
from onedispatch.transactions.packets.control_packets import read_meta
from tests.fuzz import mutate, mutate_graphdef, recordings, rule_files
from tests.fuzz.model_answers import compare
from tests.fuzz.models import generate

EVENT_LIMIT = 20_000
ARG_SIZES = {0: 4096, 1: 1 << 20, 3: 0}
_PARTITIONS = {3: ("npu1", 4), 4: ("npu2", 8)}
"""Generation -> (device, columns)"""


def decode(data: bytes) -> None:
    """Transaction.from_bytes, every field of every op, and both versions."""
    read = Transaction.from_bytes(data)
    assert read.to_bytes() == data
    for op in read.ops:
        assert len(op.raw) == op.size and op.raw.endswith(op.payload)
        assert all(value >= 0 for value in op.fields.values())
        assert str(op) and repr(op) and op.words is not None
        assert op.tile is None or op.register is None or str(op.register)
    assert len(read) == read.header.op_count == len(read.codes)
    with contextlib.suppress(OneDispatchError):
        other = read.converted(V1_0 if read.version == V0_1 else V0_1)
        back = other.converted(read.version)
        assert [(op.code, op.fields, op.payload) for op in back.ops] == [
            (op.code, op.fields, op.payload) for op in read.ops
        ]
        assert back.converted(other.version) == other


def listing(data: bytes) -> None:
    """What ``txn dump`` prints of any transaction comes back to the byte."""
    read = Transaction.from_bytes(data)
    assert Transaction.from_text(read.text()) == read
    read.text(brief=True)


def text(data: bytes) -> None:
    """Any text; what can be read comes back."""
    read = Transaction.from_text(data.decode(errors="replace"))
    assert Transaction.from_text(read.text()) == read


def check(data: bytes) -> None:
    """The checks, also of what cannot be decoded."""
    assert check_bytes(data, ARG_SIZES) is not None
    read = Transaction.from_bytes(data)
    few = read.validate()
    assert len(few) <= len(read.validate(ARG_SIZES))
    for finding in (*few, *read.check(), *read.check(ARG_SIZES)):
        assert str(finding) and 0 <= finding.byte_offset <= len(data)


def explain(data: bytes) -> None:
    """Summary, text, tiles, JSON and picture."""
    told = Transaction.from_bytes(data).explain()
    assert told.summary() and told.text() and svg(told).endswith("</svg>\n")
    assert json.loads(json.dumps(told.to_dict(), allow_nan=False))
    for tile in [*told.tiles][:4]:
        assert told.tile_text(tile)
    with contextlib.suppress(OneDispatchError):
        told.tile_text((255, 31))


def diff(data: bytes) -> None:
    """Two transactions: u32 length of the first, the first, the second."""
    first, second = (Transaction.from_bytes(part) for part in mutate.two_parts(data))
    assert not first.diff(first)
    different = first.diff(second)
    assert different.text() and json.dumps(different.to_dict())
    assert bool(different) == bool(second.diff(first))


def control(data: bytes) -> None:
    """Control packets: u32 length of the meta JSON, the JSON, the packets."""
    meta, blob = mutate.two_parts(data)
    read = ControlPackets.from_bytes(blob, meta or None)
    assert read.to_bytes() == blob and ControlPackets.from_bytes(blob, read.meta()) == read
    assert read.text() and read.findings() is not None
    made = read.to_transaction()
    made.check()
    made.explain().summary()


def meta(data: bytes) -> None:
    """The JSON that lies beside control packets."""
    for patch in read_meta(data):
        assert 0 <= patch.offset < 1 << 48 and 0 <= patch.argument < 1 << 48


def fuse_json(data: bytes) -> None:
    """A fuse map: u32 length of the JSON, the JSON, the file ``a.bin`` that it may name."""
    text, transaction = mutate.two_parts(data)
    with tempfile.TemporaryDirectory(prefix="onedispatch-fuzz-") as folder:
        (Path(folder) / "map.json").write_bytes(text)
        (Path(folder) / "a.bin").write_bytes(transaction)
        result = fuse_map(Path(folder) / "map.json")
    assert Transaction.from_bytes(result.transaction.to_bytes()) == result.transaction
    result.transaction.validate(result.layout.sizes)


def xclbin(data: bytes) -> None:
    """The container of overlays."""
    read = Xclbin.from_bytes(data)
    assert read.to_bytes() == data and len(read.uuid) == 16
    with contextlib.suppress(OneDispatchError):
        find_device(read.device)


def run_replay(data: bytes) -> None:
    """Replay: u32 length of the transaction, the transaction, control packets in argument 4."""
    transaction, blob = mutate.two_parts(data)
    generation, columns = (transaction[2], transaction[4]) if len(transaction) > 4 else (0, 0)
    name, most = _PARTITIONS.get(generation, ("", 0))
    device = f"{name}_{columns}col" if 0 < columns < most else None  # a small array is reset sooner
    packets = Packets(blob) if blob else None
    try:
        report = replay(transaction, device, packets, EVENT_LIMIT)
    except SimulationError as error:
        raise AssertionError(f"not part of the report: {error}") from error
    assert report.verdict and report.executed <= report.operations
    assert report.stop is not None or report.finished


def model(data: bytes) -> None:
    """A random ONNX model, beside onnxruntime; the bytes are nothing but the seed of its making."""
    compare(generate(data))


def compiled(data: bytes) -> None:
    """A compiled model's file: one that loads has a placement, and runs or says why not."""
    with tempfile.TemporaryDirectory(prefix="onedispatch-fuzz-") as folder:
        path = Path(folder) / "m.od"
        path.write_bytes(data)
        loaded = load(path)
    session = InferenceSession(loaded, threads=1)
    assert loaded.latest is None or session.placement is not None
    shapes = {v.name: [d if isinstance(d, int) else 2 for d in v.shape or ()] for v in loaded.inputs}
    if all(prod(shape) <= 1 << 12 for shape in shapes.values()):
        session.run(None, {v.name: np.zeros(shapes[v.name], v.dtype) for v in loaded.inputs})


def graphdef(data: bytes) -> None:
    """TensorFlow's GraphDef: all of it, and up to one of its tensors."""
    graph = read_graphdef(data)
    check_graph(graph)
    tensors = [name for node in graph.nodes for name in node.writes]
    check_graph(read_graphdef(data, [tensors[len(data) % len(tensors)]]))


def graphdef_text(data: bytes) -> None:
    """A GraphDef in protobuf's text format."""
    with tempfile.TemporaryDirectory(prefix="onedispatch-fuzz-") as folder:
        (Path(folder) / "a.pbtxt").write_bytes(data)
        check_graph(read_graphdef(Path(folder) / "a.pbtxt"))


def check_graph(graph: Graph) -> None:
    """Every node stands behind what it reads, and something needs it."""
    known = {*graph.constants, *(v.name for v in graph.inputs)}
    for node in graph.nodes:
        assert known.issuperset(node.reads) and node.domain == "tensorflow"
        known.update(node.writes)
    needed = {name for node in graph.nodes for name in node.reads} | graph.output_names
    assert graph.outputs and known >= needed >= {*graph.constants, *(v.name for v in graph.inputs)}
    assert all(needed.intersection(node.writes) for node in graph.nodes)
    assert all(str(graph.value(name)) for name in known)
    assert not any(array.flags.writeable for array in graph.constants.values())


@dataclass(frozen=True)
class Target:
    """How a surface is fuzzed.

    Attributes:
        run: the function.
        seeds: folder of ``seeds`` that it starts from.
        mutate: changes that keep the input's form.
        limit: bytes of an input, at most.
        slow: where runs are counted, this target gets one of so many.
    """

    run: Callable[[bytes], None]
    seeds: str
    mutate: mutate.Mutate
    limit: int = 16384
    slow: int = 1

    def one(self, data: bytes) -> bool:
        """Runs it; whether the input was accepted."""
        try:
            self.run(data)
        except OneDispatchError as error:
            assert str(error) and not isinstance(error, InternalError), error
            return False
        return True


TARGETS: Mapping[str, Target] = {
    "decode": Target(decode, "transactions", mutate.transaction),
    "listing": Target(listing, "transactions", mutate.transaction),
    "text": Target(text, "texts", mutate.text),
    "check": Target(check, "transactions", mutate.transaction),
    "explain": Target(explain, "transactions", mutate.transaction),
    "diff": Target(diff, "pairs", mutate.after_length(mutate.transaction, mutate.transaction)),
    "control": Target(control, "control", mutate.after_length(mutate.json_text, mutate.raw)),
    "model": Target(model, "models", mutate.raw, 64, slow=10),
    "meta": Target(meta, "meta", mutate.json_text),
    "fuse": Target(fuse_json, "fuse", mutate.after_length(mutate.json_text, mutate.transaction)),
    "compiled": Target(compiled, "compiled", mutate.compiled, slow=4),
    "graphdef": Target(graphdef, "graphdefs", mutate_graphdef.message),
    "graphdef-text": Target(graphdef_text, "graphdef-texts", mutate.text),
    "recordings": Target(recordings.run, "changes", mutate.raw, 16),
    "rules": Target(rule_files.run, "rules", mutate.json_text),
    "xclbin": Target(xclbin, "containers", mutate.container),
    "replay": Target(run_replay, "replays", mutate.after_length(mutate.transaction, mutate.raw)),
}
