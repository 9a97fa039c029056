# SPDX-License-Identifier: Apache-2.0
"""Operators from outside whose answers are wrong: refused where they are asked, with node and class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

import onedispatch as od
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec
from onedispatch.operators.emission.image import EMPTY
from onedispatch.operators.interface.operator import Lowering, Operator
from onedispatch.operators.plugin import registrations
from onedispatch.transactions import (
    ArgKind,
    ArgMap,
    Device,
    MemBd,
    ShimBd,
    TransactionBuilder,
    find_device,
    fuse,
    queue_word,
    tile_address,
)
from tests.plugins import model, value

X = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
HEADER = np.arange(32, dtype=np.float32).reshape(2, 16) - 16
RESULT, INPUT, HEAD, BOTH = range(4)
IDLE = 0x78003C
Changes = dict[str, Any]


class Headed(Operator):
    """A constant header before the input: moves through a memory tile, into scratch and on."""

    kind = "headed"

    def __init__(
        self, name: str, x: TensorSpec, header: TensorSpec, output: TensorSpec, device: Device
    ) -> None:
        super().__init__(name, [x, header], output, device)
        self.header = header

    def nests(self) -> list[Any]:
        return []

    image = EMPTY  # type: ignore[assignment]

    @property
    def activations(self) -> Any:  # type: ignore[override]
        return self.inputs[:1]

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.header.device_bytes, self.inputs[0].device_bytes, self.output.device_bytes

    def arg_map(self) -> list[ArgMap]:
        header, x, y = self.sizes
        return [
            ArgMap(ArgKind.OUTPUT, RESULT, 1, 0, y),
            ArgMap(ArgKind.INPUT, INPUT, 0, 0, x),
            ArgMap(ArgKind.CONST_INPUT, HEAD, 0, 0, header),
            ArgMap(ArgKind.SCRATCH_PAD, BOTH, 0, 0, y),
        ]

    @property
    def const_bytes(self) -> Any:  # type: ignore[override]
        return self.sizes[0]

    def format_const_params(self, out: Any = None) -> Any:
        blob = np.zeros(self.const_bytes, np.uint8) if out is None else out
        blob[:] = self.header.laid(np.asarray(self.header.value)).view(np.uint8)
        return blob

    def super_kernel_params(self) -> Any:
        return b""

    def transaction(self) -> Any:
        header, x, y = self.sizes
        steps = ((HEAD, BOTH, 0, header), (INPUT, BOTH, header, x), (BOTH, RESULT, 0, y))
        return moves(self.device, *steps)


def moves(device: Device, *steps: tuple[int, int, int, int]) -> bytes:
    """From argument to byte ``at`` of argument, so many bytes each."""
    made = TransactionBuilder.for_device(device)
    for source, target, at, size in steps:
        words = size // 4
        made.blockwrite(tile_address(0, 1, 0xA0000), MemBd.at(0, words, release=(60, 1)).to_words())
        made.blockwrite(tile_address(0, 1, 0xA0300), MemBd.at(0, words, acquire=(60, -1)).to_words())
        made.write(tile_address(0, 1, 0xA0604), queue_word("mem", 0))
        made.write(tile_address(0, 1, 0xA065C), queue_word("mem", 24))
        for bd, argument, offset, queue in ((0, target, at, 0x1D204), (1, source, 0, 0x1D214)):
            made.blockwrite(tile_address(0, 0, 0x1D000 + 32 * bd), ShimBd.at(0, words).to_words())
            made.ddr_patch(tile_address(0, 0, 0x1D004 + 32 * bd), argument, offset)
            made.write(tile_address(0, 0, queue), queue_word("shim", bd))
        made.maskpoll(tile_address(0, 0, 0x1D220), 0, IDLE)
    return made.to_bytes()


def with_lock(operator: Headed, *values: int) -> bytes:
    """The operator's transaction behind writes to a lock of the memory tile, which others may wait on."""
    more = TransactionBuilder.for_device(operator.device)
    for number in values:
        more.write(tile_address(0, 1, 0xC0010), number)
    return fuse([more.to_bytes(), Headed.transaction(operator)]).to_bytes()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    registrations.forget(__file__)


def proto(after: str = "", before: str = "", **changes: Any) -> ModelProto:
    """The node between others; ``changes`` are what its class has of its own."""
    cls = type("Changed", (Headed,), {"__module__": __name__, **changes})

    @od.maps("Headed", domain="hostile", infer=lambda n: [(np.dtype(np.float32), (10, 16))])
    def headed(node: NodeSpec, lowering: Lowering) -> None:
        x, header = node.inputs
        lowering.emit(cls(node.name, x, header, node.outputs[0], lowering.device))  # type: ignore[arg-type]

    nodes = [helper.make_node("Headed", ["b" if before else "x", "head"], ["h"], "n0", domain="hostile")]
    nodes += [helper.make_node(before, ["x"], ["b"])] if before else []
    nodes += [helper.make_node(after, ["h"], ["a"])] if after else []
    ends = [value("x", X.shape)], [value("a" if after else "h", None)]
    return model(
        nodes[::-1] if before and not after else sorted(nodes, key=lambda n: n.output[0] != "b"),
        *ends,
        initializer=[numpy_helper.from_array(HEADER, "head")],
    )


@pytest.mark.daily(3)
@pytest.mark.parametrize("groups", ["off", "on"])
@pytest.mark.parametrize("device", ["npu1", "npu2", "npu1_1col"])
@pytest.mark.parametrize(
    ("before", "after"), [("", ""), ("", "Relu"), ("Neg", ""), ("Neg", "Relu"), ("", "Transpose")]
)
def test_between_others(device: str, groups: str, before: str, after: str) -> None:
    session = od.InferenceSession(
        proto(after, before), device, fallback="error", groups=groups, record="verify"
    )
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal(X.shape).astype(np.float32)
        (y,) = session.run(None, {"x": x})
        wanted = np.concatenate([HEADER, -x if before else x])
        wanted = {"Relu": np.maximum(wanted, 0), "Transpose": wanted.T}.get(after, wanted)
        assert (y == wanted).all()


def mapped(change: Callable[[list[Any]], Any]) -> Changes:
    return {"arg_map": lambda self: change(Headed.arg_map(self))}


def raises(*_: Any) -> Any:
    raise ZeroDivisionError


def forever(*_: Any) -> Any:
    while True:
        pass


def refuses(*_: Any) -> Any:
    raise od.InputError("mine", "this", "that")


def with_write(operator: Headed, address: int, value: int) -> bytes:
    """Its transaction, and a register that it writes in the end."""
    more = TransactionBuilder.for_device(operator.device)
    more.write(address, value)
    return fuse([Headed.transaction(operator), more.to_bytes()]).to_bytes()


WRONG: dict[str, tuple[Changes, str]] = {
    "no arg map": (mapped(lambda m: None), "given None; accepted: a list of ArgMap"),
    "no entries": (mapped(lambda m: []), "no OUTPUT entry"),
    "no ArgMap": (mapped(lambda m: ["x"]), "'x'; accepted: an ArgMap"),
    "twice": (mapped(lambda m: [*m, m[1]]), "regions that do not overlap"),
    "short output": (mapped(lambda m: [replace(m[0], size=4), *m[1:]]), "at least 640 bytes"),
    "no such input": (
        mapped(lambda m: [m[0], replace(m[1], onnx_arg_idx=7), *m[2:]]),
        "onnx_arg_idx: given 7",
    ),
    "offset below 0": (mapped(lambda m: [m[0], replace(m[1], offset=-4), *m[2:]]), "ArgMap.offset: given -4"),
    "argument that is not there": (mapped(lambda m: m[:3]), "given argument 3 offset 0"),
    "parameters": (
        mapped(lambda m: [*m, ArgMap(ArgKind.CONST_KERNEL_PARAM_INPUT, 4, 0, 0, 64)]),
        "64 bytes of kernel parameters",
    ),
    "few constants": ({"const_bytes": 64}, "CONST_INPUT.*given 128; accepted: 1 to 64"),
    "constants below 0": ({"const_bytes": -1}, "const_bytes: given -1; accepted: a number of bytes"),
    "no number of constants": ({"const_bytes": "x"}, "const_bytes: given 'x'"),
    "nothing formatted": (
        {"format_const_params": lambda s, out=None: None},
        "given None; accepted: 128 bytes",
    ),
    "another size": ({"format_const_params": lambda s, out=None: np.zeros(3, np.uint8)}, r"uint8\[3\]"),
    "format raises": ({"format_const_params": raises}, "ZeroDivisionError"),
    "parameters of no entry": (
        {"super_kernel_params": lambda s: b"abcd"},
        "accepted: 4, which super_kernel_params",
    ),
    "no parameters": ({"super_kernel_params": lambda s: None}, "given None; accepted: bytes"),
    "garbage": ({"transaction": lambda s: b"garbage"}, "transaction header: given 7 bytes"),
    "no bytes": ({"transaction": lambda s: None}, "given None; accepted: the bytes of a transaction"),
    "cut off": ({"transaction": lambda s: Headed.transaction(s)[:-8]}, "8 bytes short"),
    "raises": ({"transaction": raises}, "ZeroDivisionError"),
    "another device": (
        {"transaction": lambda s: moves(find_device("npu1"), (INPUT, RESULT, 0, 512))},
        "device_generation 3; accepted: 4",
    ),
    "beyond": ({"transaction": lambda s: moves(s.device, (INPUT, RESULT, 0, 400_000))}, "past the end"),
    "argument 9": ({"transaction": lambda s: moves(s.device, (9, RESULT, 0, 512))}, "given argument 9"),
    "a lock": (
        {"transaction": lambda s: with_lock(s, 1)},
        "lock 1 of c0 r1 set to 1 in the end; accepted: 0",
    ),
    "no operator": ({"selected": lambda s, selector: None}, "selected: given None; accepted: an Operator"),
    "in_place": ({"in_place": 3}, "in_place: given 3"),
    "explain": ({"explain": raises}, "ZeroDivisionError"),
    "nests": ({"nests": raises}, "ZeroDivisionError"),
    "half a byte": (mapped(lambda m: [*m[:3], replace(m[3], size=640.5)]), "size: given 640.5"),
    "True": (mapped(lambda m: [replace(m[0], onnx_arg_idx=True), *m[1:]]), "onnx_arg_idx: given True"),
    "argument 300": (
        mapped(lambda m: [*m, ArgMap(ArgKind.SCRATCH_PAD, 300, 0, 640, 64)]),
        "xrt_arg_idx: given 300; accepted: 0 to 255",
    ),
    "control packets": (
        mapped(lambda m: [*m, ArgMap(ArgKind.CTRL_PKT_BIN, 4, 0, 0, 64)]),
        "CTRL_PKT_BIN.*super_kernel_params",
    ),
    "scratch of two": (
        mapped(lambda m: [*m, ArgMap(ArgKind.SCRATCH_PAD, 5, 0, 0, 64)]),
        "bytes 0 to 63, some of which argument 3 has, too; accepted: bytes of its own",
    ),
    "huge scratch": (mapped(lambda m: [*m[:3], replace(m[3], size=1 << 50)]), "entry 3.*at most 17,179"),
    "huge constants": ({"const_bytes": 1 << 50}, "const_bytes.*at most 17,179"),
    "half a byte of constants": ({"const_bytes": 12.5}, "const_bytes: given 12.5"),
    "constants of no entry": (mapped(lambda m: [*m[:2], m[3]]), "no CONST_INPUT entry, where const_bytes"),
    "activations of text": ({"activations": ["x"]}, r"activations\[0\]: given 'x'; accepted: inputs of"),
    "activations of another": (
        {"activations": property(lambda s: (TensorSpec("zz", np.dtype(np.float32), (8, 16)),))},
        r"activations\[0\].*accepted: inputs of the operator: x, head",
    ),
    "kind": ({"kind": 3}, "kind: given 3; accepted: text"),
    "lines": ({"explain": lambda s: [3]}, r"explain: given \[3\]; accepted: a list of lines"),
    "an error of its own": ({"transaction": refuses}, "mine: given this; accepted: that"),
    "an error of its own in arg_map": ({"arg_map": refuses}, "mine: given this; accepted: that"),
}


@pytest.mark.daily(3)
@pytest.mark.parametrize("case", WRONG)
def test_answers_that_are_wrong(case: str) -> None:
    changes, said = WRONG[case]
    with pytest.raises(od.OneDispatchError, match=said) as refused:
        od.compile(proto(**changes), fallback="error")
    text = str(refused.value)
    assert "n0" in text and ("Changed" in text or "headed (" in text) and "OneDispatch" not in text


CHANGING: dict[str, tuple[Any, str]] = {
    "transaction": (b"garbage", "transaction header: given 7 bytes"),
    "super_kernel_params": (None, "given None; accepted: bytes"),
    "arg_map": (None, "given None; accepted: a list of ArgMap"),
    "explain": (None, "given None; accepted: a list of lines"),
}


@pytest.mark.parametrize("method", CHANGING)
def test_answers_that_change(method: str) -> None:
    """Each time an operator is asked, what it says is looked at."""
    later, said = CHANGING[method]
    asked: list[int] = []

    def answer(self: Headed) -> Any:
        asked.append(1)
        return getattr(Headed, method)(self) if len(asked) == 1 else later

    with pytest.raises(od.OneDispatchError, match=said) as refused:
        od.compile(proto(**{method: answer}), fallback="error")
    assert "n0" in str(refused.value) and "OneDispatch" not in str(refused.value)


def test_descriptors_stay_in_their_regions() -> None:
    """Behind the result lies what others made: it once was overwritten."""
    steps = ((HEAD, BOTH, 0, 128), (INPUT, BOTH, 128, 512), (RESULT, RESULT, 0, 704))
    with pytest.raises(od.TransactionError, match=r"n0 .*by a BD that goes on past the end of its region"):
        od.compile(proto("Relu", transaction=lambda s: moves(s.device, *steps)), fallback="error")


RUN: dict[str, tuple[tuple[int, int, int], str]] = {
    "a register that is none": ((0, 0, 0xFFFF0), "offset 0xFFFF0"),
    "a task that nothing ends": ((0, 1, 0xA0604), "left behind"),
}


@pytest.mark.parametrize("case", RUN)
def test_errors_of_runs_name_the_node(case: str) -> None:
    (column, row, offset), said = RUN[case]
    made = proto(transaction=lambda s: with_write(s, tile_address(column, row, offset), 0))
    session = od.InferenceSession(made, fallback="error")
    with pytest.raises(od.SimulationError, match=said) as refused:
        session.run(None, {"x": X})
    assert str(refused.value).startswith("node 'n0' (headed), ")


@pytest.mark.parametrize(
    "method", ["transaction", "arg_map", "super_kernel_params", "format_const_params", "explain"]
)
def test_methods_that_do_not_end(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDISPATCH_KERNEL_SECONDS", "0.3")
    with pytest.raises(od.KernelTimeoutError, match=r"n0.*no end within 0\.3 seconds"):
        od.compile(proto(**{method: forever}), fallback="error")


def test_a_lock_that_is_set_back() -> None:
    made = proto("Relu", transaction=lambda s: with_lock(s, 1, 0))
    (y,) = od.InferenceSession(made, fallback="error").run(None, {"x": X})
    assert (y == np.maximum(np.concatenate([HEADER, X]), 0)).all()


def test_constants_of_an_array_of_its_own() -> None:
    def formatted(self: Headed, out: Any = None) -> Any:
        return self.header.laid(np.asarray(self.header.value)).view(np.uint8).copy()

    (y,) = od.InferenceSession(proto(format_const_params=formatted), fallback="error").run(None, {"x": X})
    assert (y == np.concatenate([HEADER, X])).all()


@pytest.mark.parametrize("moved", [(), ((INPUT, RESULT, 0, 512),)])
def test_results_that_nothing_writes(moved: Any) -> None:
    session = od.InferenceSession(proto(transaction=lambda s: moves(s.device, *moved)), fallback="error")
    with pytest.raises(od.SimulationError, match="output bytes that the transaction never wrote: h"):
        session.run(None, {"x": X})
