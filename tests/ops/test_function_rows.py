# SPDX-License-Identifier: Apache-2.0
"""A parameter block that names a row of a table which the library lacks is refused, never computed."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

import onedispatch.cpp_ext._core as core
from onedispatch import SimulationError
from onedispatch.operators.declarations import params
from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.declarations.functions import ACTIVATIONS, ELTWISE
from onedispatch.operators.declarations.kernel import MARK_SHIFT, Function, FunctionTable
from onedispatch.operators.emission.image import Image
from onedispatch.operators.kernels.elementwise import KERNEL
from onedispatch.transactions import ArgKind
from tests.ops.case import case, f32
from tests.ops.host import buffers_of, overlay_for, run_buffers
from tests.ops.lowered import lower

RELU = case("Relu", f32(3, 40))
LATER = {t.name: replace(t, rows=(*t.rows, Function("later", dtypes="f32"))) for t in (ACTIVATIONS, ELTWISE)}


def answer(scalar: str, word: int | None) -> np.ndarray:  # type: ignore[type-arg]
    """What the simulator computes with ``word`` for a scalar; None leaves what is there."""
    ((_, op),) = lower(RELU).ops
    buffers = buffers_of(op, RELU.arrays)
    (at,) = (e.xrt_arg_idx for e in op.arg_map() if e.kind is ArgKind.CONST_KERNEL_PARAM_INPUT)
    sent = bytearray(buffers[at])
    if word is not None:
        struct.pack_into("<I", sent, sent.index(op.parameter_blocks[0]) + 4 * KERNEL.layout[scalar], word)
    buffers[at] = bytes(sent)
    (first, *_) = run_buffers(op.device, op.transaction(), buffers, overlay_for(op))
    return np.frombuffer(first[: op.output.device_bytes], np.float32)


def test_sealed_rows_are_named_by_their_codes() -> None:
    np.testing.assert_array_equal(answer("act", None), RELU.expected[0].reshape(-1))
    np.testing.assert_array_equal(answer("act", ACTIVATIONS.word("none")), RELU.arrays[0].reshape(-1))


@pytest.mark.parametrize(("scalar", "table"), [("act", ACTIVATIONS), ("func", ELTWISE)])
def test_a_row_that_the_library_lacks_is_refused(scalar: str, table: FunctionTable) -> None:
    last = len(table.rows) - 1
    with pytest.raises(SimulationError, match=f"{scalar}: function {last + 1} of .*; accepted: 0 to {last}"):
        answer(scalar, LATER[table.name].word("later"))


def test_another_row_at_the_same_place_is_refused() -> None:
    mark = LATER["activation"].mark(len(ACTIVATIONS.rows))
    with pytest.raises(SimulationError, match=f"act: a function with mark {mark}.*relu stands there"):
        answer("act", ACTIVATIONS.code("relu") | mark << MARK_SHIFT)


def test_what_came_later_is_linked_and_refused_where_it_is_not() -> None:
    """A row behind the sealed ones is code of its own: charged where it is used, and only there."""
    (_, relu), (_, elu) = lower(RELU).ops[0], lower(case("Elu", f32(3, 40))).ops[0]
    row = ACTIVATIONS["elu"]
    entry = 4 * params.CARRIED_WORDS  # digest and element types
    assert elu.image.nbytes - relu.image.nbytes == row.code_bytes + entry
    assert {one.name for one in elu.image.linked} == {KERNEL.name, "activation.elu"}
    assert (relu.image | elu.image).nbytes == elu.image.nbytes  # once for all kernels that call it
    with pytest.raises(SimulationError, match=r"act: elu of f32.*the program image carries: od::eltwise"):
        answer("act", ACTIVATIONS.word("elu"))


def test_an_image_without_what_came_later_does_not_go_with_its_blocks() -> None:
    (_, relu), (_, elu) = lower(RELU).ops[0], lower(case("Elu", f32(3, 40))).ops[0]

    def words(image: Image) -> bytes:
        return np.array(image.words, "<u4").tobytes()

    core.check_image(words(elu.image), elu.super_kernel_params(), 1)
    with pytest.raises(ValueError, match="with elu of element type 0; the image carries: od::eltwise"):
        core.check_image(words(relu.image), elu.super_kernel_params(), 1)
    (function,) = (one for one in elu.image.linked if one.name == "activation.elu")
    for wrong in (function._replace(types=1 << DTYPES["i8"].code), function._replace(code_bytes=16)):
        kernels = tuple(wrong if one is function else one for one in elu.image.linked)
        with pytest.raises(ValueError, match=r"for element types of the mask|with the code of its kernels"):
            core.check_image(words(Image(kernels)), elu.super_kernel_params(), 1)
