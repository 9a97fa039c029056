# SPDX-License-Identifier: Apache-2.0
"""Live ranges of scratch, and edges, from what operators of an executable say of themselves."""

from __future__ import annotations

import numpy as np

from onedispatch.dispatch.compiler.executable import DeviceStep, OpInfo
from onedispatch.dispatch.page.edges import EdgeObserver, edges_of_steps
from onedispatch.dispatch.page.scratch import alive, readers


def step(*operators: tuple[tuple[str, int, int], ...]) -> DeviceStep:
    """Operators by the regions of scratch that they read and write."""
    infos = [
        OpInfo(
            f"op{at}",
            "eltwise",
            (f"node{at}",),
            at + 1,
            tuple(f"arg {n} {kind}: scratch[{a}:{b}] t" for n, (kind, a, b) in enumerate(regions)),
        )
        for at, regions in enumerate(operators)
    ]
    return DeviceStep(b"", (0, 0, 0, 0, 0), np.zeros(0, np.uint8), b"", (), (), tuple(infos))


def test_a_tensor_is_alive_up_to_its_last_reader() -> None:
    given = step(
        (("OUTPUT", 0, 100),),
        (("INPUT", 0, 100), ("OUTPUT", 128, 160)),
        (("INPUT", 128, 160),),
        (("INPUT", 0, 100), ("OUTPUT", 128, 130)),
    )
    assert alive(given) == [100, 132, 132, 102]
    assert readers(given) == [(0, 1), (1, 2), (0, 3)]


def test_memory_that_is_written_over_belongs_to_the_new_tensor() -> None:
    given = step(
        (("OUTPUT", 0, 64),),
        (("INPUT", 0, 64), ("OUTPUT", 0, 64)),  # in place
        (("INPUT", 0, 64),),
        (("OUTPUT", 32, 96),),
        (("INPUT", 64, 96),),
    )
    assert alive(given) == [64, 64, 64, 64, 64]
    assert readers(given) == [(0, 1), (1, 2), (3, 4)]


def test_parts_that_several_operators_write_and_pads_count() -> None:
    given = step(
        (("OUTPUT", 0, 10),),
        (("OUTPUT", 10, 20), ("SCRATCH_PAD", 64, 128)),
        (("INPUT", 0, 20),),
    )
    assert alive(given) == [10, 84, 20]
    assert readers(given) == [(0, 2), (1, 2)]


def test_names_may_look_like_regions() -> None:
    given = step((("OUTPUT", 0, 8),))
    named = OpInfo("x", "move", (), 1, ("arg 0 INPUT: in[0:8] arg 0 OUTPUT: scratch[0:9999] y",))
    assert alive(step()) == [] and alive(given) == [8]
    assert readers(DeviceStep(b"", given.sizes, given.const, b"", (), (), (named,))) == []


def test_edges_without_a_graph() -> None:
    given = step((("OUTPUT", 0, 8),), (("INPUT", 0, 8), ("OUTPUT", 8, 16)), (("INPUT", 8, 16),))
    assert edges_of_steps([[[0, 1], [2], []]], [given]) == [(0, 1), (1, 2)]


def test_members_are_nodes_of_the_model() -> None:
    seen = EdgeObserver(origins={"norm": ("a", "b")})
    infos = [("a",), ("norm",), ("b/Attention",), ("nobody", "b")]
    ops = tuple(OpInfo("x", "k", nodes, at + 1) for at, nodes in enumerate(infos))
    given = DeviceStep(b"", (0, 0, 0, 0, 0), np.zeros(0, np.uint8), b"", (), (), ops)
    assert seen.members(["a", "b"], given) == [[0], [0, 1], [1], [1]]
