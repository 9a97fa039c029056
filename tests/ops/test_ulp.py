# SPDX-License-Identifier: Apache-2.0
"""Every kernel that has bfloat16, beside exact results rounded once: within the ulp that it declares.

Which kernels there are says the registry; cases are those of the tables, each of which becomes one operator.
Exact is onnxruntime's float32 of the same bfloat16 values, rounded by ml_dtypes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

import onedispatch
from onedispatch.operators.declarations.kernel import Kernel
from onedispatch.operators.declarations.registry import all_kernels
from onedispatch.operators.interface.operator import Operator
from onedispatch.operators.kernels.convert import Convert
from tests.ops.case import OPSET, Array, Case, Input, case, run_onnxruntime, value
from tests.ops.cases_nbits import product
from tests.ops.lowered import lower
from tests.ops.typed import BFLOAT16, TYPED, widened

BYTES = value(np.arange(-128, 127).reshape(5, 51), "int8", const=False)
FURTHER = [
    case("DequantizeLinear", BYTES, value(0.047, "bfloat16")),  # integers come first
    case("Resize", Input((2, 3, 5, 6), "bfloat16"), None, value([1, 1, 2.5, 1]), mode="linear"),  # one pass
    # Weights are rounded once they are scaled, and powers of two round none.
    *(product((5, 96), 24, bits, dtype="bfloat16", zeros="packed", powers=True) for bits in (4, 8)),
]
MOST = 24  # cases of a kernel
SUMS = 2.0**-16  # of the largest result: what float32 may leave of sums that cancel


def has_bfloat16(kernel: Kernel) -> bool:
    return any("bf16" in tensor.dtypes.split() for tensor in kernel.tensors)


def exact(one: Case) -> Array:
    """The first output, rounded once."""
    newer = not one.domain and onnx.defs.get_schema(one.op_type, one.opset).since_version > 22
    wide = replace(widened("bfloat16", "float32", one), opset=one.opset if newer else min(one.opset, OPSET))
    found = run_onnxruntime(wide.model, wide.feed)[0]
    return found.astype(BFLOAT16) if found.dtype == np.float32 and one.op_type != "Cast" else found


def is_exact(operator: Operator) -> bool:
    """Whether it makes bfloat16 wider and does nothing else."""
    return isinstance(operator, Convert) and operator.output.dtype == np.float32


def by_kernel() -> dict[str, list[Case]]:
    """Cases that are one operator, behind those that widen its inputs, by the kernels that this runs."""
    found: dict[str, list[Case]] = {}
    for one in (*TYPED, *FURTHER):
        if not any(x is not None and x.dtype == "bfloat16" for x in one.inputs):
            continue
        one = replace(one)  # what is expected of it is kept elsewhere too
        one.__dict__["expected"] = [exact(one)]
        operators = [operator for _, operator in lower(one).ops if not is_exact(operator)]
        for nest in operators[0].nests() if len(operators) == 1 else ():
            found.setdefault(nest.kernel.name, []).append(one)
    return found


CASES = by_kernel()


@pytest.mark.daily(3)
@pytest.mark.parametrize(
    "kernel", [one for one in all_kernels() if has_bfloat16(one)], ids=lambda one: one.name
)
def test_a_kernel_keeps_its_ulp(kernel: Kernel) -> None:
    cases = CASES.get(kernel.name, [])
    assert cases, f"no case of {kernel.name} in bfloat16 that is one rounding: add one to tests/ops"
    for one in cases[:: max(1, len(cases) // MOST)]:
        (wanted,) = one.expected
        (found, *_) = onedispatch.InferenceSession(one.model, fallback="error").run(None, one.feed)
        if wanted.dtype != BFLOAT16:
            np.testing.assert_array_equal(found, wanted, err_msg=one.id)
            continue
        assert found.dtype == BFLOAT16
        a, e = found.astype(np.float64), wanted.astype(np.float64)
        known = np.isfinite(e)
        np.testing.assert_array_equal(a[~known], e[~known], err_msg=one.id)
        a, e = a[known], e[known]
        last = np.exp2(np.floor(np.log2(np.maximum(np.abs(e), 2.0**-126))) - 7)  # 8 significant bits
        bound = kernel.ulp * last + SUMS * np.abs(e).max(initial=0)
        assert (np.abs(a - e) <= bound).all(), f"{one.id}: {(np.abs(a - e) / last).max()} ulp"
