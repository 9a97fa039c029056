# SPDX-License-Identifier: Apache-2.0
"""Cases of Einsum."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.ops.case import SUMS, Case, Input, case, f32, weight
from tests.ops.strategies import DEVICES, sums_of


def one(equation: str, *inputs: Input) -> Case:
    return case("Einsum", *inputs, tolerance=SUMS, equation=equation)


CASES = [
    one("ij,jk->ik", f32(5, 7), f32(7, 4)),
    *one("bqhd,bkhd->bhqk", f32(2, 5, 3, 8), f32(2, 6, 3, 8)).on("npu2", "npu1", "npu2_1col"),
    one("bhqk,bkhd->bqhd", f32(2, 3, 5, 6), f32(2, 6, 3, 8)),
    one("bnd,dhk->bhnk", f32(2, 5, 6), weight(6, 3, 4)),
    one("ncwl,vw->ncvl", f32(2, 3, 5, 7), f32(5, 5)),
    one("ij,jk,kl->il", f32(5, 7), f32(7, 4), weight(4, 6)),
    one("bic,bjc,bc->bij", f32(2, 3, 4), f32(2, 5, 4), f32(2, 4)),
    one("...ij,...jk", f32(3, 5, 7), f32(3, 7, 4)),
    one("ij,kl->il", f32(5, 7), f32(3, 4)),
    one("i,j->ji", f32(7), f32(5)),
    one("i,i", f32(7), f32(7)),
    one("i,i", Input((7,), "float16"), Input((7,), "float16")),
    one("abc,cz->zab", f32(4, 0, 3), f32(3, 2)),
    one("ij,ij->i", f32(6, 4), weight(6, 4)),
    one("ij,ij->i", weight(4, 6), f32(4, 6)),
    one("abc,ab->a", f32(3, 5, 4), weight(3, 5)),
    one("...ii->...i", f32(3, 5, 5)),
    one("bij->jb", f32(3, 5, 7)),
    one("abiw,abwo->aoib", Input((2, 2, 5, 3), "int32", "small"), Input((2, 2, 3, 4), "int32", "small")),
]


@st.composite
def einsum(draw: st.DrawFn) -> Case:
    """Two operands, labels in any order, any of them kept."""
    sizes = {label: draw(st.integers(1, 6)) for label in "abcde"}
    labels = st.lists(st.sampled_from("abcde"), min_size=1, max_size=4, unique=True)
    left, right = draw(labels), draw(labels)
    every = sorted({*left, *right})
    kept = draw(st.permutations(every))[: draw(st.integers(0, len(every)))]
    inputs = [Input(tuple(sizes[x] for x in term), const=draw(st.booleans())) for term in (left, right)]
    terms = 1
    for label in set(every).difference(kept):
        terms *= sizes[label]
    equation = f"{''.join(left)},{''.join(right)}->{''.join(kept)}"
    return case("Einsum", *inputs, tolerance=sums_of(2 * terms), device=draw(DEVICES), equation=equation)


FAMILIES: dict[str, st.SearchStrategy[Case]] = {"einsum": einsum()}
