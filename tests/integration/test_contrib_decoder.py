# SPDX-License-Identifier: Apache-2.0
"""A small language model as onnxruntime's model builder writes it, token by token beside onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onedispatch as od
from onedispatch.operators.declarations.registry import MICROSOFT

WIDTH, HEADS, SHARED, INNER, WORDS, BLOCK, PLACES = 64, 4, 2, 96, 50, 32, 32
SIZE, LAYERS = WIDTH // HEADS, 2
CACHES = [f"{part}.{i}" for i in range(LAYERS) for part in ("key", "value")]


@dataclass
class Decoder:
    """Weights of four bits in blocks; embeddings, projections, attention over a cache, a gated product."""

    dtype: Any
    nodes: list[Any] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)
    rng: Any = field(default_factory=lambda: np.random.default_rng(11))

    def op(self, op_type: str, inputs: list[str], *outputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"{op_type}_{outputs[0]}"
        node = helper.make_node(op_type, inputs, outputs, name=name, domain=domain, **attributes)
        self.nodes.append(node)
        return outputs[0]

    def hold(self, name: str, array: Any) -> str:
        self.held.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def norm(self, x: str, name: str, skip: str = "", total: str = "") -> str:
        scale = self.hold(f"{name}.scale", (self.rng.random(WIDTH) + 0.5).astype(self.dtype))
        if not skip:
            return self.op("SimplifiedLayerNormalization", [x, scale], name, axis=-1, epsilon=1e-6)
        outputs = [name, "", "", total] if total else [name]
        op_type = "SkipSimplifiedLayerNormalization"
        return self.op(op_type, [skip, x, scale], *outputs, domain=MICROSOFT, epsilon=1e-6)

    def product(self, x: str, name: str, rows: int, columns: int) -> str:
        packed = self.rng.integers(0, 256, (columns, rows // BLOCK, BLOCK // 2)).astype(np.uint8)
        scales = (self.rng.random(columns * rows // BLOCK) * 0.02 + 0.005).astype(self.dtype)
        weights = [self.hold(f"{name}.q", packed), self.hold(f"{name}.s", scales)]
        more = {"K": rows, "N": columns, "bits": 4, "block_size": BLOCK}
        return self.op("MatMulNBits", [x, *weights], name, domain=MICROSOFT, **more)

    def lengths(self) -> None:
        mask, one = "attention_mask", self.hold("one", np.int64([1]))
        self.op("ReduceSum", [mask, one], "length", keepdims=1)
        self.op("Cast", [self.op("Sub", ["length", one], "last")], "seqlens_k", to=TensorProto.INT32)
        self.op("Gather", [self.op("Shape", [mask], "shape"), self.hold("axis", np.int64(1))], "keys")
        self.op("Cast", ["keys"], "total", to=TensorProto.INT32)

    def layer(self, i: int, x: str, skip: str, tables: list[str]) -> tuple[str, str]:
        packed = self.product(x, f"qkv.{i}", WIDTH, (HEADS + 2 * SHARED) * SIZE)
        past = [f"past.{part}.{i}" for part in ("key", "value")]
        inputs = [packed, "", "", *past, "seqlens_k", "total", *tables]
        outputs = [f"attended.{i}", *(one.replace("past", "present") for one in past)]
        heads = {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": 1}
        self.op("GroupQueryAttention", inputs, *outputs, domain=MICROSOFT, **heads)
        y = self.norm(self.product(outputs[0], f"o.{i}", WIDTH, WIDTH), f"n.{i}", skip, f"sum.{i}")
        up, gate = (self.product(y, f"{one}.{i}", WIDTH, INNER) for one in ("up", "gate"))
        self.op("Mul", [gate, self.op("Sigmoid", [gate], f"open.{i}")], f"silu.{i}")
        down = self.product(self.op("Mul", [f"silu.{i}", up], f"inner.{i}"), f"down.{i}", INNER, WIDTH)
        return self.norm(down, f"y.{i}", f"sum.{i}", f"skip.{i}"), f"skip.{i}"

    def model(self) -> onnx.ModelProto:
        self.lengths()
        angles = np.arange(PLACES)[:, None] / 1e4 ** (np.arange(SIZE // 2) * 2 / SIZE)
        tables = [self.hold(one.__name__, one(angles).astype(self.dtype)) for one in (np.cos, np.sin)]
        packed = self.hold("words", self.rng.integers(0, 256, (WORDS, WIDTH // 2)).astype(np.uint8))
        scales = self.hold("words.s", (self.rng.random((WORDS, WIDTH // BLOCK)) * 0.1).astype(self.dtype))
        table = [packed, "input_ids", scales]
        more = {"bits": 4, "block_size": BLOCK, "quantize_axis": 1}
        skip = self.op("GatherBlockQuantized", table, "embedded", domain=MICROSOFT, **more)
        x = self.norm(skip, "first")
        for i in range(LAYERS):
            x, skip = self.layer(i, x, skip, tables)
        self.product(x, "logits", WIDTH, WORDS)
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        whole = TensorProto.INT64

        def caches(name: str, length: str) -> list[Any]:
            shape = ["batch", SHARED, length, SIZE]
            return [helper.make_tensor_value_info(f"{name}.{one}", kind, shape) for one in CACHES]

        ids = helper.make_tensor_value_info("input_ids", whole, ["batch", "sequence"])
        mask = helper.make_tensor_value_info("attention_mask", whole, ["batch", "total"])
        logits = helper.make_tensor_value_info("logits", kind, ["batch", "sequence", WORDS])
        inputs, outputs = [ids, mask, *caches("past", "past")], [logits, *caches("present", "total")]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.held)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.daily(2)
@pytest.mark.parametrize(("dtype", "close"), [(np.float32, 2e-6), (np.float16, 4e-3)])
def test_tokens_one_by_one(dtype: Any, close: float) -> None:
    model = Decoder(dtype).model()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    theirs = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    session = od.InferenceSession(model, fallback="error")
    ids, batch, total = np.random.default_rng(2).integers(0, WORDS, (2, 5)), 2, 5
    cache = {f"past.{one}": np.zeros((batch, SHARED, 0, SIZE), dtype) for one in CACHES}
    for _ in range(3):
        feed = {"input_ids": ids, "attention_mask": np.ones((batch, total), np.int64), **cache}
        made, wanted = session.run(None, feed), theirs.run(None, feed)
        for one, other in zip(made, wanted, strict=True):
            assert np.abs(one - other).max() <= close * np.abs(other).max()
        assert session.last_run is not None and session.last_run.dispatches == 1
        cache = dict(zip(cache, wanted[1:], strict=True))
        ids, total = wanted[0][:, -1:].argmax(-1), total + 1
