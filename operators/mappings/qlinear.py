# SPDX-License-Identifier: Apache-2.0
"""What onnxruntime's quantiser writes for functions of one tensor: tables of 256 entries.

Their entries are computed as onnxruntime computes its own, float by float, so that not one differs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onedispatch.operators.declarations.registry import MICROSOFT, maps
from onedispatch.operators.interface.operator import Lowering, NodeSpec
from onedispatch.operators.kernels.elementwise import Array
from onedispatch.operators.kernels.quant_params import fused
from onedispatch.operators.lowering.qlinear import BYTES, SCALED, emit_table, unary_of

# onnxruntime's logistic function is a quotient of polynomials of x squared. Highest powers first.
_ABOVE = (
    4.37031012579801e-11,
    1.15627324459942e-07,
    6.08574864600143e-05,
    8.51377133304701e-03,
    2.48287947061529e-01,
)
_BELOW = (
    6.10247389755681e-13,
    5.76102136993427e-09,
    6.29106785017040e-06,
    1.70198817374094e-03,
    1.16817656904453e-01,
    9.93151921023180e-01,
)
_FLAT = np.float32(18)  # beyond it the function is 0 or 1


def logistic(x: Array) -> Array:
    """The sigmoid of float32 as onnxruntime approximates it, to the bit."""
    x = np.clip(x, -_FLAT, _FLAT)
    above, below = (_polynomial(x * x, terms) for terms in (_ABOVE, _BELOW))
    return np.asarray(np.clip(above * x / below + np.float32(0.5), np.float32(0), np.float32(1)))


def _polynomial(x: Array, terms: tuple[float, ...]) -> Array:
    found = np.full_like(x, np.float32(terms[0]))
    for term in terms[1:]:
        found = fused(found, x, np.float32(term))
    return found


def _map_unary(node: NodeSpec, lowering: Lowering, function: Callable[[Array], Array]) -> None:
    x, output, read, written = unary_of(node)

    def entry(numbers: Array) -> Array:
        return written.integers(function(read.floats(numbers)), output.dtype)

    emit_table(node.name, x, output, entry, lowering)


@maps("QLinearSigmoid", dtypes=BYTES, domain=MICROSOFT, like=0, notes=f"by table; {SCALED}")
def map_qlinear_sigmoid(node: NodeSpec, lowering: Lowering) -> None:
    _map_unary(node, lowering, logistic)


@maps("QLinearLeakyRelu", dtypes=BYTES, domain=MICROSOFT, like=0, notes=f"by table; {SCALED}")
def map_qlinear_leaky_relu(node: NodeSpec, lowering: Lowering) -> None:
    alpha = np.float32(node.attr("alpha", 0.01))
    _map_unary(node, lowering, lambda x: np.where(x >= 0, x, x * alpha))
