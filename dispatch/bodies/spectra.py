# SPDX-License-Identifier: Apache-2.0
"""DFT and STFT as products with matrices of cosines and sines.

A transform of n members takes n multiplications for each, which is what an array for products does well;
the matrix is a constant, whose size is the limit.
"""

from __future__ import annotations

import numpy as np

from onedispatch.dispatch.bodies.writer import Body, body
from onedispatch.dispatch.frontend.graph import Array

MOST_ELEMENTS = 1 << 23  # of a matrix: 32 MB in float32


def _turned(rows: int, columns: int, length: int, inverse: bool) -> Array:
    """exp(-2 pi i r c / length), or its conjugate: [rows, columns]; rows beyond ``length`` are zero."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length / length
    found: Array = np.exp((2j if inverse else -2j) * np.pi * turns)
    found[length:] = 0
    return found


def _real(matrix: Array, parts: int) -> Array:
    """The same for numbers of one or two parts: [rows, parts, columns, 2]."""
    pairs = np.stack((matrix, 1j * matrix), axis=1)[:, :parts]  # of the real part, and of the imaginary one
    return np.stack((pairs.real, pairs.imag), axis=-1)


def _parts(b: Body, shape: tuple[int, ...]) -> int:
    """How many parts numbers have: 1, or 2 where they are complex."""
    if len(shape) < 2 or shape[-1] not in (1, 2):
        raise b.refusal(str(b.value(0)), "a last dimension of 1, or of 2 for complex numbers")
    return shape[-1]


def _check_size(b: Body, rows: int, columns: int) -> None:
    elements = rows * columns * 2
    if elements > MOST_ELEMENTS:
        raise b.refusal(f"a matrix of {elements} elements", f"at most {MOST_ELEMENTS}")


@body("DFT", since=17)
def dft(b: Body) -> tuple[str, ...]:
    """The axis is moved before the parts; both together are the rows of one matrix."""
    shape = b.shape(0)
    rank, parts = len(shape), _parts(b, shape)
    axis = (b.attributes["axis"] if "axis" in b.attributes else b.number(2, -2)) % rank
    if axis == rank - 1:
        raise b.refusal(f"axis {axis}, of the parts of numbers", f"0 to {rank - 2}")
    rows, length = shape[axis], b.number(1, shape[axis])
    onesided, inverse = bool(b.attributes["onesided"]), bool(b.attributes["inverse"])
    if onesided and inverse:
        raise b.refusal("onesided and inverse", "one of both")
    if length < 1:
        raise b.refusal(f"dft_length {length}", "1 or more")
    count = length // 2 + 1 if onesided else length
    _check_size(b, rows * parts, count)
    matrix = _real(_turned(rows, count, length, inverse), parts)
    order = [*(d for d in range(rank - 1) if d != axis), axis, rank - 1]
    others = [shape[d] for d in order[:-2]]
    x = b.input(0) if order == list(range(rank)) else b.op("Transpose", b.input(0), perm=order)
    x = b.reshaped(x, *others, rows * parts)
    y = b.op("MatMul", x, b.floats(matrix.reshape(rows * parts, count * 2)))
    if inverse:  # behind the sum, so that what cancels in it does so
        y = b.op("Mul", y, b.floats(1 / length))
    y = b.reshaped(y, *others, count, 2)
    back = [order.index(d) for d in range(rank)]
    return (y if order == list(range(rank)) else b.op("Transpose", y, perm=back),)


@body("STFT", since=17)
def stft(b: Body) -> tuple[str, ...]:
    """A convolution along blocks of ``step`` samples, which are its channels; frames begin at blocks."""
    shape = b.shape(0)
    if len(shape) == 2:
        shape = (*shape, 1)  # real samples: onnxruntime takes them so
    if len(shape) != 3:
        raise b.refusal(str(b.value(0)), "a tensor of rank 3, or of rank 2 for real samples")
    batch, samples, _ = shape
    parts = _parts(b, shape)
    step, window, onesided = b.number(1, 0), b.constant_of(2), bool(b.attributes["onesided"])
    if b.input(2) and window is None:
        raise b.refusal(f"window {b.input(2)!r}, which is computed", "a constant")
    length = b.number(3, 0 if window is None else window.size)
    if step < 1 or not 1 <= length <= samples or (window is not None and window.size != length):
        given = f"frame_step {step} and frame_length {length} of {samples} samples"
        raise b.refusal(given, "frames within the signal, as long as their window")
    if onesided and parts == 2:
        raise b.refusal("onesided of complex samples", "real ones")
    frames, count = (samples - length) // step + 1, length // 2 + 1 if onesided else length
    blocks = -(-length // step)  # of a frame
    _check_size(b, blocks * step * parts, count)
    weights = np.zeros((blocks * step, parts, count, 2))
    weights[:length] = _real(_turned(length, count, length, False), parts)
    if window is not None:
        weights[:length] *= window.reshape(-1, 1, 1, 1).astype(np.float64)
    # [blocks, step * parts, count * 2] -> [count * 2, step * parts, blocks]
    kernel = weights.reshape(blocks, step * parts, count * 2).transpose(2, 1, 0)
    x = _in_blocks(b, (batch, samples, parts), step, frames - 1 + blocks)
    y = b.op("Conv", x, b.floats(kernel))
    y = b.op("Transpose", y, perm=[0, 2, 1])
    return (b.reshaped(y, batch, frames, count, 2),)


def _in_blocks(b: Body, shape: tuple[int, int, int], step: int, blocks: int) -> str:
    """The signal as [batch, step * parts, blocks]: cut, or filled up with zeros, behind its end."""
    batch, samples, parts = shape
    x, held = b.reshaped(b.input(0), batch, samples * parts), blocks * step * parts
    if held < samples * parts:
        first, end, axis = (b.constant([one], np.int64) for one in (0, held, 1))
        x = b.op("Slice", x, first, end, axis)
    elif held > samples * parts:
        x = b.op("Pad", x, b.constant([0, 0, 0, held - samples * parts], np.int64))
    return b.op("Transpose", b.reshaped(x, batch, blocks, step * parts), perm=[0, 2, 1])
