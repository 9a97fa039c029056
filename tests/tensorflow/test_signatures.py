# SPDX-License-Identifier: Apache-2.0
"""The signatures of TensorFlow's operators: the table, what it says of nodes, and lines that are wrong."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from onedispatch.dispatch.tensorflow.operator_table import OPERATORS
from onedispatch.dispatch.tensorflow.signatures import Signature, read_line, signature_of, signatures
from onedispatch.transactions.base.errors import InternalError, ModelError
from tests.tensorflow.evaluator import FUNCTIONS

F32, F16, I32, I64, BOOL = (np.dtype(k) for k in (np.float32, np.float16, np.int32, np.int64, np.bool_))
T: dict[str, Any] = {"T": F16}


def signature(op_type: str) -> Signature:
    found = signature_of(op_type)
    assert found is not None, op_type
    return found


def test_the_table_has_the_operators_of_networks() -> None:
    assert len(signatures()) >= 200
    assert set(FUNCTIONS) <= set(signatures())
    assert signature_of("NoSuchOperator") is None


def test_what_a_line_says() -> None:
    one = signature("TopKV2")
    assert (one.inputs, one.outputs) == (("input", "k"), ("values", "indices"))
    assert one.attributes == ("sorted", "T", "Tk", "index_type")
    assert one.defaults == {"sorted": True, "Tk": I32, "index_type": I32}
    conv = signature("Conv2D")
    assert conv.attributes[:2] == ("T", "strides") and "padding" not in conv.defaults
    assert conv.defaults["dilations"] == [1, 1, 1, 1] and conv.defaults["data_format"] == "NHWC"
    assert conv.of("data_format", {"data_format": "NCHW"}) == "NCHW" and conv.of("strides", {}) is None
    assert signature("FusedBatchNormV3").outputs[-1] == "reserve_space_3"


@pytest.mark.parametrize(
    ("op_type", "attributes", "types"),
    [
        ("Relu", T, [F16]),
        ("Relu", {}, [None]),
        ("Relu", {"T": None}, [None]),  # a resource
        ("LeakyRelu", {}, [F32]),
        ("Less", T, [BOOL]),
        ("Cast", {"SrcT": F32, "DstT": I64}, [I64]),
        ("TopKV2", T, [F16, I32]),
        ("TopKV2", {**T, "index_type": I64}, [F16, I64]),
        ("Split", {**T, "num_split": 3}, [F16, F16, F16]),
        ("Split", {**T, "num_split": 0}, []),
        ("ShapeN", {**T, "N": 2}, [I32, I32]),
        ("IdentityN", {"T": [F32, None, I64]}, [F32, None, I64]),
        ("FusedBatchNormV3", {**T, "U": F32}, [F16, F32, F32, F32, F32, F32]),
        ("NoOp", {}, []),
        ("Assert", {"T": [F32]}, []),
        ("ArgMax", T, [I64]),
        ("NonMaxSuppressionV5", {}, [I32, F32, I32]),
        ("ResizeBilinear", T, [F32]),
        ("Bucketize", T, [I32]),
        ("Where", {}, [I64]),
    ],
)
def test_types_of_outputs(op_type: str, attributes: dict[str, Any], types: list[Any]) -> None:
    one = signature(op_type)
    assert one.types(attributes) == types
    assert one.count(attributes) == len(types)


@pytest.mark.parametrize(
    ("op_type", "attributes", "text"),
    [
        ("Split", {}, "Split, attribute 'num_split': given no value"),
        ("Split", {"num_split": "x"}, "given 'x'; accepted: a number of tensors"),
        ("Split", {"num_split": True}, "given True"),
        ("Split", {"num_split": -1}, "given -1"),
        ("IdentityN", {"T": F32}, "accepted: a list of element types"),
    ],
)
def test_attributes_that_do_not_say_how_many(op_type: str, attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelError, match=re.escape(text)):
        signature(op_type).count(attributes)
    with pytest.raises(ModelError, match=re.escape(text)):
        signature(op_type).types(attributes)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("Relu(features: T) activations: T; T", "NAME(inputs) -> outputs; attributes"),
        ("Relu(features) -> y: T; T", "port 'features'"),
        ("Relu(features: T) -> y: T; U", "a type or an attribute"),
        ("Split(value: T) -> y: N*T; T", "a type or an attribute"),
        ("Relu(features: T) -> y: T; T, alpha=half", "default 'half'"),
    ],
)
def test_a_line_that_is_wrong(line: str, text: str) -> None:
    with pytest.raises(InternalError, match=re.escape(text)):
        read_line(line)


def test_every_operator_is_there_once() -> None:
    whole = re.sub(r"\n +", " ", OPERATORS)
    lines = [line for line in whole.splitlines() if line and not line.startswith("#")]
    names = [name for line in lines for name in line.partition("(")[0].split()]
    assert sorted(names) == sorted(signatures())
