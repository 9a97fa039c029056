# SPDX-License-Identifier: Apache-2.0
"""Operators as ResNet-50, MobileNetV2 and BERT-base at 128 tokens have them: in fp32, int8 and bf16."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ml_dtypes import bfloat16

from tests.bench.operator_cases import qlinear_conv
from tests.ops.case import Case, Input, case, f32, integers, weight


def _convolution(channels: int, side: int, made: int, window: int, stride: int = 1, group: int = 1) -> Case:
    weights = weight(made, channels // group, window, window)
    attributes: dict[str, Any] = {"pads": [window // 2] * 4} if window > 1 else {}
    attributes |= {"strides": [stride] * 2} if stride > 1 else {}
    attributes |= {"group": group} if group > 1 else {}
    return case("Conv", f32(1, channels, side, side), weights, **attributes)


def _product(rows: int, depth: int, columns: int) -> Case:
    return case("MatMul", f32(rows, depth), weight(depth, columns))


def _in_bytes(one: Case) -> Case:
    """The same convolution of bytes by int8."""
    x, weights = (given.shape for given in one.inputs if given)
    return qlinear_conv(integers("uint8", *x), weights, **one.attributes)


def _in_bf16(one: Case) -> Case:
    inputs = tuple(given and replace(given, dtype="bfloat16") for given in one.inputs)
    return replace(one, inputs=inputs, opset=22, answer=one.expected[0].astype(bfloat16))


def as_onnxruntime_has_it(one: Case) -> Case:
    """In float32 instead of bf16, of which onnxruntime computes nothing on processors."""

    def widened(given: Input | None) -> Input | None:
        return replace(given, dtype="float32") if given and given.dtype == "bfloat16" else given

    inputs = tuple(widened(given) for given in one.inputs)
    return one if inputs == one.inputs else replace(one, inputs=inputs, answer=None)


_POINTWISE, _SQUARE = _convolution(64, 56, 256, 1), _convolution(128, 28, 128, 3)
_DEPTHWISE = _convolution(144, 56, 144, 3, group=144)
_PROJECTION, _EXPANSION = _product(128, 768, 768), _product(128, 768, 3072)


def network_cases() -> Iterator[Case]:
    yield from (_convolution(3, 224, 64, 7, 2), _POINTWISE, _SQUARE, _convolution(512, 7, 2048, 1))
    yield from (_convolution(256, 56, 512, 1, 2), _convolution(512, 7, 512, 3))
    yield case("MaxPool", f32(1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    yield case("Add", f32(1, 256, 56, 56), f32(1, 256, 56, 56))
    yield from (_DEPTHWISE, _convolution(144, 56, 144, 3, 2, 144), _convolution(960, 7, 960, 3, group=960))
    yield from (_convolution(24, 56, 144, 1), _convolution(320, 7, 1280, 1))
    yield from (_PROJECTION, _EXPANSION, _product(1, 2048, 1000))
    yield case("MatMul", f32(12, 128, 64), f32(12, 64, 128))
    yield case("Softmax", f32(12, 128, 128))
    yield case("LayerNormalization", f32(128, 768), weight(768), weight(768))
    yield from (_in_bytes(one) for one in (_POINTWISE, _SQUARE, _DEPTHWISE))
    yield case("MatMulInteger", integers("uint8", 128, 768), integers("int8", 768, 768, const=True))
    yield from (_in_bf16(one) for one in (_POINTWISE, _SQUARE, _PROJECTION, _EXPANSION))
