# SPDX-License-Identifier: Apache-2.0
"""Attention and rotary embedding as decoders are exported: causal, with past keys, with computed tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onedispatch as od

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

LOWEST = np.finfo(np.float32).min
ORDER = np.tri(3, 8, k=5, dtype=bool)  # three queries behind five places of the past
SCALE = np.float32(0.125)
HALF = {"from": [0], "middle": [4], "to": [8], "last": [3]}
PAST = """ keys = Concat<axis=2>(past_k, k)  values = Concat<axis=2>(past_v, v) """
SCORES = """ turned = Transpose<perm=[0, 1, 3, 2]>(keys)  p = MatMul(q, turned)  scores = Mul(p, scale) """
REST = """ w = Softmax<axis=-1>(masked)  y = MatMul(w, values) """
INPUTS = {
    "q": (2, 4, 3, 8), "k": (2, 4, 3, 8), "v": (2, 4, 3, 8), "past_k": (2, 4, 5, 8), "past_v": (2, 4, 5, 8),
    "few_k": (2, 2, 8, 8), "few_v": (2, 2, 8, 8), "x": (2, 4, 3, 8), "angles": (2, 3, 4), "others": (2, 3, 4),
    "rows": (2, 3, 8), "one": (1, 3, 4), "mask": (3, 8), "late": (2, 3, 4, 8),
}  # fmt: skip
IDS = {"ids": (2, 3), "own_ids": (2, 3, 8)}
TABLE = np.tile(np.linspace(0, 3, 24, dtype=np.float32).reshape(6, 4), 2)
EACH = np.arange(4, dtype=np.float32).reshape(1, 4, 1, 1) + TABLE[:3]


def placed(nodes: str, outputs: str, **constants: Any) -> list[od.NodePlacement]:
    """The rows of a model that computes what it does in onnxruntime."""
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) {{ {nodes} }}'
    )
    del proto.graph.input[:], proto.graph.output[:]
    read = {name for node in proto.graph.node for name in node.input}
    kind = onnx.TensorProto.FLOAT
    proto.graph.input.extend(
        onnx.helper.make_tensor_value_info(n, kind, shape)
        for n, shape in INPUTS.items() if n in read and n not in constants
    )  # fmt: skip
    for name in sorted(read & set(IDS)):
        proto.graph.input.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, IDS[name]))
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in outputs.split())
    for name, value in {"scale": SCALE, "low": LOWEST, "one_axis": [1], **HALF, **constants}.items():
        array = np.asarray(value)
        array = array.astype(np.int64) if array.dtype.kind == "i" else array
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    session = od.InferenceSession(proto, fallback="error")
    rng = np.random.default_rng(11)
    feed = {
        one.name: rng.integers(0, 6, one.shape) if one.name in IDS
        else rng.standard_normal(one.shape).astype(np.float32)
        for one in session.get_inputs()
    }  # fmt: skip
    theirs = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feed)
    for mine, other in zip(session.run(None, feed), theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-6)
    return list(session.placement)


def took(rows: list[od.NodePlacement], rule: str, op_type: str) -> bool:
    (row,) = (row for row in rows if row.op_type == op_type)
    return row.reason.startswith(f"rule {rule}, with ")


def remark(rows: list[od.NodePlacement], op_type: str) -> str:
    (row,) = (row for row in rows if row.op_type == op_type)
    assert not row.reason.startswith("rule ")
    return row.remark


# -- causal order and past keys --------------------------------------------------------------------

CAUSAL = {
    "added": ("masked = Add(scores, order)", {"order": np.where(ORDER, 0, LOWEST).astype(np.float32)}),
    "infinite": ("masked = Add(scores, order)", {"order": np.where(ORDER, 0, -np.inf).astype(np.float32)}),
    "shown": ("masked = Where(order, scores, low)", {"order": ORDER}),
    "hidden": ("masked = Where(order, low, scores)", {"order": ~ORDER[None, None]}),
}


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_attention_with_past_keys_fires(name: str) -> None:
    masked, constants = CAUSAL[name]
    rows = placed(f"{PAST} {SCORES} {masked} {REST}", "y keys values", **constants)
    assert took(rows, "attention", "Softmax") and took(rows, "attention", "Mul")
    assert {row.reason for row in rows if row.op_type == "Concat"} == {"as move"}


def test_causal_attention_of_grouped_heads_fires() -> None:
    many = {
        "apart": [2],
        "more": [2, 2, 2, 8, 8],
        "whole": [2, 4, 8, 8],
        "flat": [8, 8, 8],
        "wide": [2, 4, 8, 8],
    }
    nodes = """
        k1 = Unsqueeze(few_k, apart)  k2 = Expand(k1, more)  k3 = Reshape(k2, flat)
        k4 = Transpose<perm=[0, 2, 1]>(k3)  turned = Reshape(k4, wide)
        v1 = Unsqueeze(few_v, apart)  v2 = Expand(v1, more)  values = Reshape(v2, whole)
        p = MatMul(q, turned)  scores = Mul(p, scale)  masked = Where(order, scores, low)
    """
    rows = placed(f"{nodes} {REST}", "y", order=ORDER, **many)
    assert took(rows, "attention_grouped", "Softmax")


@pytest.mark.parametrize(
    ("masked", "constants", "condition"),
    [
        ("masked = Where(order, scores, few)", {"order": ORDER, "few": np.float32(-9)}, "-1e+30 or less"),
        ("masked = Where(order, scores, low)", {"order": ORDER[:1] & False}, "leaves every row a key"),
        ("masked = Where(order, scores, low)", {"order": ORDER[:, :1]}, "one value for each key"),
        ("masked = Add(scores, order)", {"order": np.ones((3, 1), np.float32)}, "one value for each key"),
        (
            "order = Less(mask, zero) masked = Where(order, low, scores)",
            {"zero": np.float32(-9)},
            "through a constant mask",
        ),
    ],
    ids=["not low", "nothing seen", "one for all", "one added", "computed"],
)
def test_attention_stays_apart(masked: str, constants: dict[str, Any], condition: str) -> None:
    text = remark(placed(f"{PAST} {SCORES} {masked} {REST}", "y", **constants), "Softmax")
    assert "rule attention did not fire: " in text and condition in text


def test_scale_mask_and_softmax_alone_are_told_apart() -> None:
    """The scale goes into the product; a mask of the run stays, and says why."""
    nodes = f"{PAST} {SCORES} masked = Add(scores, mask) w = Softmax(masked)"
    rows = {row.op_type: row for row in placed(nodes, "w")}
    assert rows["Mul"].reason == f"as matmul together with {rows['MatMul'].node}: merge matmul_factor"
    assert "merge matmul_bias did not fire: mask is no constant" in rows["Add"].remark


# -- rotary embedding ---------------------------------------------------------------------------------

TURN = """ low_half = Slice(x, from, middle, last)  high_half = Slice(x, middle, to, last)
    n = Neg(high_half)  turned = Concat<axis=-1>(n, low_half)
    a = Mul(x, c)  b = Mul(turned, s)  y = Add(a, b) """
ANGLES = """ both = Concat<axis=-1>(angles, {other})  cosines = Cos(both)  sines = Sin(both)
    large = Mul(cosines, scale)  c = Unsqueeze(large, one_axis)  s = Unsqueeze(sines, one_axis) """
ONE_BY_ONE = """ g = Gather(line, own_ids)  c = Unsqueeze(g, one_axis)
    h = Gather(line, own_ids)  s = Unsqueeze(h, one_axis) """


def test_tables_that_are_computed_from_positions() -> None:
    rows = placed(ANGLES.format(other="angles") + TURN, "y")
    assert took(rows, "rotary_embedding_computed", "Neg")


def test_tables_whose_rows_are_gathered() -> None:
    nodes = """ g = Gather(table, ids)  h = Gather(table, ids)
        c = Unsqueeze(g, one_axis)  s = Unsqueeze(h, one_axis) """
    assert took(placed(nodes + TURN, "y", table=TABLE), "rotary_embedding_computed", "Neg")


def test_three_dimensions() -> None:
    turn = TURN.replace("(x, ", "(rows, ")
    table = TABLE[:3]
    assert took(placed(turn, "y", c=table, s=table, last=[2]), "rotary_embedding", "Neg")


@pytest.mark.parametrize(
    ("tables", "constants", "condition"),
    [
        (ANGLES.format(other="others"), {}, "computed or constant tables whose halves are the same"),
        (
            ONE_BY_ONE,
            {"line": np.tile(TABLE[1, :3], 2)},
            "computed or constant tables whose halves are the same",
        ),
        (ANGLES.format(other="angles").replace("angles", "one"), {}, "for every position of every batch"),
        ("", {"c": EACH, "s": EACH}, "the same for each head"),
        ("", {"c": TABLE[:3], "s": TABLE[:3], "middle": [3]}, "the second half of the last axis"),
    ],
    ids=["halves", "no rows", "batch", "heads", "cut elsewhere"],
)
def test_rotary_embedding_stays_apart(tables: str, constants: dict[str, Any], condition: str) -> None:
    rows = placed(tables + TURN, "y", **constants)
    (row,) = (row for row in rows if row.node.startswith("Concat") and "rotary" in row.remark)
    assert "did not fire: " in row.remark and condition in row.remark


# Every second element, as GPT-J has it, and its heads behind the places.
SECOND = {"even": [0], "odd": [1], "all": [2**62], "axis": [3], "two": [2], "end": [-1], "behind": [2]}
SHAPES = {
    "like": [2, 3, 4, 8],
    "halves": [2, 3, 4, 4, 2],
    "row": [2, 3, 8],
    "twice": [1, 1, 1, 2],
    "i": 0,
    "j": 1,
}
EVERY = np.repeat(TABLE[:3, :4], 2, -1).reshape(1, 3, 1, 8)
EVEN_ODD = "low_half = Slice(late, even, all, axis, two)  high_half = Slice(late, odd, all, axis, two)"
STACK = "{a}_ = Unsqueeze({a}, end)  {b}_ = Unsqueeze({b}, end)  both_ = Concat<axis=-1>({a}_, {b}_)"
TURN_PAIRS = f"""{EVEN_ODD}  n = Neg(high_half)  {STACK.format(a="n", b="low_half")}
    turned = Reshape(both_, like)  a = Mul(late, c)  b = Mul(turned, s)  y = Add(a, b) """
TURN_APART = f"""p = Mul(low_half, c)  r = Mul(high_half, s)  first_ = Sub(p, r)
    t = Mul(low_half, s)  u = Mul(high_half, c)  second_ = Add(t, u)
    {STACK.format(a="first_", b="second_")}  y = Reshape(both_, like) """
PAIRS = (
    """ x2 = Reshape(late, halves)  low_half = Gather<axis=-1>(x2, i)  high_half = Gather<axis=-1>(x2, j) """
)
# Angles that are repeated side by side, in the ways in which exporters write it.
SIDE_BY_SIDE = {
    "expanded": "single = Unsqueeze(angles, end)  pair = Expand(single, twice)",
    "tiled": "single = Unsqueeze(angles, end)  pair = Tile(single, twice)",
    "stacked": "single = Unsqueeze(angles, end)  pair = Concat<axis=-1>(single, single)",
}
COMPUTED = """ both = Reshape(pair, row)  cosines = Cos(both)  sines = Sin(both)
    c = Unsqueeze(cosines, behind)  s = Unsqueeze(sines, behind) """


def test_every_second_element_behind_known_tables() -> None:
    rows = placed(TURN_PAIRS, "y", c=EVERY, s=EVERY + 1, **SECOND, **SHAPES)
    assert took(rows, "rotary_embedding_heads_behind", "Neg")
    assert {row.reason.partition(", with ")[0] for row in rows} == {"rule rotary_embedding_heads_behind"}


@pytest.mark.parametrize("repeated", SIDE_BY_SIDE)
def test_every_second_element_behind_computed_tables(repeated: str) -> None:
    rows = placed(SIDE_BY_SIDE[repeated] + COMPUTED + TURN_PAIRS, "y", **SECOND, **SHAPES)
    assert took(rows, "rotary_embedding_heads_behind_computed", "Neg")


def test_pairs_that_are_turned_apart() -> None:
    table = EVERY[..., ::2]
    rows = placed(PAIRS + TURN_APART, "y", c=table, s=table + 1, **SECOND, **SHAPES)
    assert took(rows, "rotary_halves_heads_behind", "Concat")


def test_halves_of_heads_behind_places() -> None:
    turn = TURN.replace("(x, ", "(late, ")
    table = TABLE[:3].reshape(3, 1, 8)
    assert took(placed(turn, "y", c=table, s=table + 1), "rotary_embedding_heads_behind", "Neg")
    computed = ANGLES.format(other="angles").replace("one_axis", "behind")
    assert took(placed(computed + turn, "y", behind=[2]), "rotary_embedding_heads_behind_computed", "Neg")


@pytest.mark.parametrize(
    ("nodes", "constants", "condition"),
    [
        (TURN_PAIRS, {"c": np.tile(EVERY[..., ::2], 2), "s": EVERY}, "tables whose halves are the same"),
        (TURN_PAIRS.replace("odd", "even"), {"c": EVERY, "s": EVERY}, "the second half of the last axis"),
        (TURN_PAIRS, {"c": EVERY + np.ones((4, 1), np.float32), "s": EVERY}, "with heads after positions"),
        (PAIRS + TURN_APART, {"c": EVERY[..., ::2], "s": EVERY[..., ::2], "j": 0}, "the second half"),
        (
            PAIRS.replace("axis=-1", "axis=-2") + TURN_APART,
            {"c": EVERY[..., ::2], "s": EVERY[..., ::2], "halves": [2, 3, 4, 2, 4]},
            "the second half of the last axis",
        ),
    ],
    ids=["tables", "one twice", "heads", "element twice", "halves"],
)
def test_every_second_element_stays_apart(nodes: str, constants: dict[str, Any], condition: str) -> None:
    rows = placed(nodes, "y", **{**SECOND, **SHAPES, **constants})
    (row,) = (row for row in rows if row.op_type == "Concat")
    assert not row.reason.startswith("rule ")
    assert "rule rotary_" in row.remark and "did not fire: " in row.remark and condition in row.remark
