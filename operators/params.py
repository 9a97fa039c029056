# SPDX-License-Identifier: Apache-2.0
"""The super kernel's parameter block: one table of words, read by Python and by C++.

A parameter block is 128 little-endian 32-bit words that an operator hands to the
persistent super kernel of every core. The first 40 words describe the loop that the
core runs (which buffers, which locks, which tiles); the rest belongs to one kernel.
``python -m onedispatch.operators.params PATH`` writes the C++ header from this table.

Groups used below
    port        4 words: address in core view, slot bytes, depth/locks/cadence, chunk bytes
    dim         4 words: extent, tile, cc | cr<<16 | oc<<20, outer count; the tile of step o
                is column*cc + row*cr + o*oc
    axis        5 words: extent D, chunk extent E, stride, a | align<<16, b
    activation  3 words: code, alpha (f32), beta (f32)
    window      PortRef + axis groups of one tensor chunk
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MAGIC = 0x0D15A7C4
WORDS = 128
BYTES = WORDS * 4
ARGS_AT = 40
ABSENT = 0xFFFFFFFF

PORT_IN0, PORT_IN1, PORT_OUT = 0, 1, 2
CADENCE_NONE, CADENCE_STEP, CADENCE_TILE, CADENCE_ONCE = 0, 1, 2, 3

KERNELS = {
    "ELTWISE": 1,
    "GEMM": 2,
    "CONV": 3,
    "DWCONV": 4,
    "POOL": 5,
    "REDUCE": 6,
    "SOFTMAX": 7,
    "LRN": 8,
}
ACTIVATIONS = {
    "none": 0,
    "relu": 1,
    "leakyrelu": 2,  # x < 0 ? alpha * x : x
    "clip": 3,  # min(max(x, alpha), beta)
    "sigmoid": 4,
    "tanh": 5,
    "exp": 6,
    "sqrt": 7,
    "erf": 8,
    "abs": 9,
    "neg": 10,
    "log": 11,
    "reciprocal": 12,
}
ELTWISE_FUNCS = {
    "copy": 0,
    "add": 1,  # alpha * a + beta * b
    "sub": 2,
    "mul": 3,
    "div": 4,
    "muladd": 5,  # a * b + c
    "fill": 6,  # alpha, no input
    "max": 7,
    "min": 8,
    "pow": 9,
}
POOL_MODES = {"max": 0, "average_exclude_pad": 1, "average_include_pad": 2}
REDUCE_MODES = {"sum": 0, "mean": 1, "max": 2, "min": 3, "sum_square": 4, "prod": 5}
DTYPES = {"f32": 0, "i8i32": 1}

# What core programs accept, by argument: mappings refuse what is beyond, before anything is emitted.
LIMITS = {
    "window_step": 1 << 12,  # kernel extent, stride, dilation
    "window_plane": 1 << 20,  # elements of one channel that the windows of a tile cover
    "window_taps": 1 << 16,
    "lrn_size": 1 << 14,
}

# name -> first word. Widths follow from the groups in the module docstring.
HEADER = {
    "magic": 0,
    "kernel": 1,
    "row_mask": 2,
    "inner_steps": 3,
    "port_in0": 4,
    "port_in1": 8,
    "port_out": 12,
    "dims": 16,
    "k_extent": 36,
    "k_tile": 37,
    "loop_order": 38,  # dimension per nibble, outermost loop in the lowest one
}
# A sliding window and its input: the same words in CONV, DWCONV and POOL (after their channel dim).
_WINDOW = {
    "dim_oh": 42,
    "dim_ow": 43,
    "kh": 44,
    "kw": 45,
    "sh": 46,
    "sw": 47,
    "dh": 48,
    "dw": 49,
    "x": 50,
    "x_c": 51,
    "x_h": 56,
    "x_w": 61,
}
ARGS: dict[str, dict[str, int]] = {
    # inputs: n_in x 8 words {PortRef, element stride per index dim 0..4, 0, 0}; 0 = broadcast
    "ELTWISE": {"func": 40, "n_in": 41, "alpha": 42, "beta": 43, "act": 44, "dtype": 47, "inputs": 48},
    # signed_bits: bit 0 A signed, bit 1 B signed (dtype i8i32). alpha scales the f32 product.
    # C[m][n] = act(alpha * sum_k A[m][k] * B[k][n] + bias[n]); zero points are subtracted first.
    "GEMM": {
        "dtype": 40,
        "signed_bits": 41,
        "dim_m": 42,
        "dim_n": 43,
        "a": 44,
        "a_m": 45,
        "a_k": 50,
        "b": 55,
        "b_k": 56,
        "b_n": 61,
        "bias": 66,
        "bias_n": 67,
        "act": 72,
        "alpha": 75,
        "a_zero": 76,
        "a_zero_m": 77,
        "b_zero": 82,
        "b_zero_n": 83,
    },
    # w_layout 0: W chunk, CONV: [k_tile * kh * kw][co tile], index ((ci * kh + y) * kw + x) * T_co + co, ci
    # counted from the step's first channel, channels past K are zero. w_layout 1: as ONNX has them,
    # [co tile][k_tile][kh * kw], the last chunk shifted back into the tensor. Bias chunk: [co tile].
    "CONV": {
        "dim_co": 41,
        **_WINDOW,
        "w": 66,
        "bias": 67,
        "act": 68,
        "w_layout": 71,
    },
    # W chunk, DWCONV: [c tile][kh * kw]. No reduction steps.
    "DWCONV": {
        "dim_c": 41,
        **_WINDOW,
        "w": 66,
        "bias": 67,
        "act": 68,
    },
    # pads count cells for average_include_pad: a cell counts when inside [-begin, D + end).
    "POOL": {
        "dim_c": 41,
        **_WINDOW,
        "mode": 66,
        "act": 68,
        "pad_top": 71,
        "pad_left": 72,
        "pad_bottom": 73,
        "pad_right": 74,
    },
    # out[r][i] = reduce_k x[r][k][i], accumulated in the out chunk over the inner steps.
    "REDUCE": {
        "mode": 40,
        "dim_r": 41,
        "dim_i": 42,
        "x": 44,
        "x_r": 45,
        "x_k": 50,
        "x_i": 55,
        "act": 60,
    },
    # x and out chunk: [T_o][length][T_i]; the middle dimension is whole in the chunk.
    "SOFTMAX": {"log": 40, "dim_o": 41, "dim_i": 42, "length": 43, "x": 44},
    "LRN": {
        "dim_o": 41,
        "dim_i": 42,
        "length": 43,
        "x": 44,
        "size": 45,
        "alpha": 46,
        "beta": 47,
        "bias": 48,
    },
}


@dataclass(frozen=True)
class Axis:
    """How a chunk lies along one tensor dimension (5 words).

    The chunk's origin is ``clamp(align_down(a * o + b), 0, extent - chunk)`` for the tile
    origin ``o`` of the index dimension; ``stride`` is counted in elements of the chunk.
    """

    extent: int
    chunk: int
    stride: int
    a: int = 1
    b: int = 0
    align: int = 1

    def words(self) -> list[int]:
        return [self.extent, self.chunk, self.stride, self.a | self.align << 16, self.b & 0xFFFFFFFF]

    def origin(self, tile_origin: int) -> int:
        """First coordinate that the chunk of the tile at ``tile_origin`` holds."""
        wanted = self.a * tile_origin + self.b
        wanted -= wanted % self.align
        return min(max(wanted, 0), self.extent - self.chunk)


SCALAR_AXIS = Axis(extent=1, chunk=1, stride=0)


@dataclass(frozen=True)
class Activation:
    """A unary function applied to every result element: ``code`` of ``ACTIVATIONS``."""

    code: str = "none"
    alpha: float = 0.0
    beta: float = 0.0

    def words(self) -> list[int]:
        return [ACTIVATIONS[self.code], f32(self.alpha), f32(self.beta)]


def f32(value: float) -> int:
    """The bits of ``value`` rounded to float32, as an unsigned word."""
    try:
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError:  # beyond float32: the IEEE result is an infinity
        return 0x7F800000 if value > 0 else 0xFF800000


def port_ref(port: int, byte_offset: int) -> int:
    return port << 24 | byte_offset


@dataclass
class ParamBlock:
    """The words of one block under construction."""

    kernel: str
    words: list[int] = field(default_factory=lambda: [0] * WORDS)

    def __post_init__(self) -> None:
        self.words[HEADER["magic"]] = MAGIC
        self.words[HEADER["kernel"]] = KERNELS[self.kernel]

    def put(self, at: int, values: Iterable[int]) -> None:
        """Raises ``OverflowError`` for what is no word: to cut it off would be another operator."""
        for i, value in enumerate(values):
            if not -(1 << 31) <= value < 1 << 32:
                raise OverflowError(f"word {at + i} of a {self.kernel} parameter block is {value}")
            self.words[at + i] = value & 0xFFFFFFFF

    def set_args(self, values: Mapping[str, int | list[int]]) -> None:
        """Fill named kernel arguments; a list fills consecutive words."""
        table = ARGS[self.kernel]
        for name, value in values.items():
            self.put(table[name], value if isinstance(value, list) else [value])

    def to_bytes(self) -> bytes:
        return struct.pack(f"<{WORDS}I", *self.words)


def header_text() -> str:
    """The C++ header ``kernel_params.h``, whole."""
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// GENERATED by operators/params.py: do not edit.",
        "#pragma once",
        "#include <cstdint>",
        "",
        "namespace onedispatch::params {",
        f"constexpr uint32_t kMagic = 0x{MAGIC:08X};",
        f"constexpr uint32_t kWords = {WORDS};",
        f"constexpr uint32_t kAbsent = 0x{ABSENT:08X};",
    ]

    def block(name: str, entries: Mapping[str, int]) -> None:
        lines.append(f"namespace {name} {{")
        lines.extend(f"constexpr uint32_t {key} = {value};" for key, value in entries.items())
        lines.append(f"}}  // namespace {name}")

    block("kernel_id", KERNELS)
    block("cadence", {"none": 0, "step": 1, "tile": 2, "once": 3})
    block("activation", {f"{k}_": v for k, v in ACTIVATIONS.items()})
    block("eltwise_func", {f"{k}_": v for k, v in ELTWISE_FUNCS.items()})
    block("pool_mode", POOL_MODES)
    block("reduce_mode", REDUCE_MODES)
    block("dtype", DTYPES)
    block("limit", LIMITS)
    block("header", HEADER)
    for kernel, table in ARGS.items():
        block(kernel.lower(), table)
    lines.append("}  // namespace onedispatch::params")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    from onedispatch.transactions.files import write_file

    write_file(sys.argv[1], header_text().encode())
