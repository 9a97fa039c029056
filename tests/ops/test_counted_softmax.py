# SPDX-License-Identifier: Apache-2.0
"""Hand counts of softmax of bytes: look-ups, sums in order, exact quotients."""

from __future__ import annotations

import numpy as np

from onedispatch.operators.kernels.qlinear_softmax import SoftmaxOfBytes
from onedispatch.operators.kernels.quant_params import QuantParams
from onedispatch.transactions import Device
from tests.ops.test_counted_work import DEVICES, cycles, tensor


def softmax_of_bytes(device: Device, *shape: int) -> float:
    x, y = (tensor(name, shape, np.uint8) for name in "xy")
    powers = tensor("powers", (256,))
    return cycles(
        SoftmaxOfBytes("s", [x, powers], y, device, (1, 2), QuantParams(np.float32(1 / 256), 0)), device
    )


@DEVICES
def test_softmax_of_bytes_adds_up_members_of_rows_one_by_one_and_divides_in_words_of_64_bits(
    device: Device,
) -> None:
    words, bytes_ = (int(device.constant(f"kernel.{name}_lanes")) for name in ("i32", "i8"))
    halves = words // int(device.constant("kernel.i64_lanes"))
    # The estimate by what a line has, split once, made whole and a float again; both products, compared
    # twice, each moved; both ends.
    product = device.constant("kernel.i64_mul_cycles")
    quotients = 14 + 2 + halves * (2 * product + 2 * 4 + 2 * 1) + 2 * (1 + 1)
    looked_up = 2 * (words / 4 + 1)  # for the sum, for the quotient; a conversion each
    vector = 1 + 1 + 2  # compared; made indices; made words, and narrow again
    row = 3 * 10 + 104 + 5
    across = int(np.log2(bytes_)) * (1 + 1)
    along = bytes_ // words * (looked_up + quotients) + vector + across + 2 * bytes_
    assert softmax_of_bytes(device, 3, bytes_) - softmax_of_bytes(device, 2, bytes_) == row + along
    # Lines beside one another are added up in vectors.
    beside = 7 * (bytes_ // words * (looked_up + quotients + 1) + vector) + bytes_ // words * row
    assert softmax_of_bytes(device, 3, 7, bytes_) - softmax_of_bytes(device, 2, 7, bytes_) == beside
    # Behind 256 results a row has no new ones: they are laid out once, and looked up.
    vectors = 4 * 256 // int(device.constant("kernel.vector_bytes"))
    longer = softmax_of_bytes(device, 2, 512) - softmax_of_bytes(device, 1, 512)
    short = softmax_of_bytes(device, 2, 256) - softmax_of_bytes(device, 1, 256)
    more = 256 // words * looked_up + 256 // bytes_ * vector + 2 * 256
    assert longer - short == more + 10 + vectors
