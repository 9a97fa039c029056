# SPDX-License-Identifier: Apache-2.0
"""The page "Your own kernels": what it promises of its blocks. ``test_documents`` runs them."""

from __future__ import annotations

from tests.examples.test_documents import RUNS, blocks_of

PAGE = "operators/YOUR_KERNELS.md"


def test_every_block_is_one_that_runs_or_a_picture() -> None:
    assert {block.kind for block in blocks_of(PAGE)} == {*RUNS, "text", "toml"}
    assert not [block for block in blocks_of(PAGE) if block.why_not]


def test_the_first_kernel_takes_fifteen_lines_or_fewer() -> None:
    text = next(block.text for block in blocks_of(PAGE) if block.kind == "python")
    lines = [line for line in text.splitlines() if line.strip()]
    assert any("acme::scale_add" in line for line in lines) and len(lines) <= 15
