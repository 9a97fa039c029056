# SPDX-License-Identifier: Apache-2.0
"""What is fed in several operands costs by its bytes, whatever number of tiles a core takes."""

from tests.ops.case import case, f32
from tests.ops.lowered import lower


def commands(n: int) -> int:
    ((_, op),) = lower(case("Add", f32(n), f32(n))).ops
    return len(op.transaction())


def test_sixteen_tiles_of_a_core_take_no_more_commands_than_seventeen() -> None:
    # An even number of tiles was fed in groups of two, and each group was a task of its own.
    assert commands(1 << 20) <= commands(1_100_000)
