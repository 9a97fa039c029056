# SPDX-License-Identifier: Apache-2.0
"""Every selector is held to the types and the rules, and named where it fails."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import onedispatch as od
from onedispatch.operators.declarations.registry import mapping_for
from onedispatch.operators.declarations.tensor import NodeSpec, TensorSpec, Unsupported
from onedispatch.operators.interface.operator import Lowering
from onedispatch.operators.scheduling import cost_model
from onedispatch.operators.scheduling.nest import Nest
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.search import search
from onedispatch.operators.scheduling.select import SEARCH, Search, select
from onedispatch.operators.scheduling.solution import Mapping, Solution
from onedispatch.transactions import Device
from onedispatch.transactions.machine.device import read_text
from tests.devices import device_text
from tests.integration.test_operators_solution import NPU2, PLAIN, Always, chain, product

FITS = Solution("od::gemm@1", PLAIN, (8, 8), 8)


def mapped(**fields: Any) -> Solution:
    return replace(FITS, mapping=replace(PLAIN, **fields))


# What a selector answers, and which part of it is told to be wrong.
NONSENSE: dict[str, tuple[Any, str]] = {
    "nothing": (None, "answer: given None; accepted: a Solution, not a NoneType"),
    "data": (FITS.to_data(), "answer.*a Solution, not a dict"),
    "generator": ((one for one in (FITS,)), "answer.*a Solution, not a generator"),
    "list of one": ([FITS], "answer.*a Solution, not a list"),
    "no kernel": (replace(FITS, kernel=None), r"answer\.kernel: given None; accepted: a str"),
    "another kernel": (replace(FITS, kernel="od::conv@1"), "given 'od::conv@1'; accepted: od::gemm@1"),
    "another variant": (replace(FITS, kernel="od::gemm@2"), "given 'od::gemm@2'; accepted: od::gemm@1"),
    "no tiles": (replace(FITS, tiles=None), r"answer\.tiles: given None; accepted: a tuple"),
    "text for tiles": (replace(FITS, tiles="ab"), r"answer\.tiles: given 'ab'; accepted: a tuple"),
    "list of tiles": (replace(FITS, tiles=[8, 8]), r"answer\.tiles: given \[8, 8\]; accepted: a tuple"),
    "text in tiles": (replace(FITS, tiles=("a",)), r"answer\.tiles\[0\]: given 'a'; accepted: an int"),
    "truth in tiles": (replace(FITS, tiles=(8, True)), r"answer\.tiles\[1\]: given True; accepted: an int"),
    "float in tiles": (replace(FITS, tiles=(8.0, 8)), r"answer\.tiles\[0\]: given 8.0; accepted: an int"),
    "NaN in tiles": (replace(FITS, tiles=(float("nan"), 8)), r"answer\.tiles\[0\]: given nan"),
    "huge tile": (replace(FITS, tiles=(8, 1 << 20_000)), r"answer\.tiles\[1\].*an int of 64 bits"),
    "large tile": (replace(FITS, tiles=(8, 1 << 40)), "tile of n: given 1099511627776; accepted: 1 to 160"),
    "text for k": (replace(FITS, k_tile="8"), r"answer\.k_tile: given '8'; accepted: an int"),
    "negative k": (replace(FITS, k_tile=-8), "tile of k: given -8; accepted: 1 to 96"),
    "no mapping": (replace(FITS, mapping=None), r"answer\.mapping: given None; accepted: a Mapping"),
    "no order": (mapped(order=None), r"answer\.mapping\.order: given None; accepted: a tuple"),
    "text in order": (mapped(order=("a", 1)), r"answer\.mapping\.order\[0\]: given 'a'"),
    "text for in1": (mapped(in1="b"), r"answer\.mapping\.in1: given 'b'; accepted: a frozenset"),
    "set for in1": (mapped(in1={"a"}), r"answer\.mapping\.in1.*a frozenset, not a set"),
    "number in in1": (mapped(in1=frozenset([1])), r"answer\.mapping\.in1: given 1; accepted: a str"),
    "truth for columns": (mapped(columns=True), r"answer\.mapping\.columns: given True"),
    "no columns": (mapped(columns=None), r"answer\.mapping\.columns: given None"),
    "number for rowcast": (mapped(rowcast=0), r"answer\.mapping\.rowcast: given 0; accepted: a bool"),
    "truth for a dimension": (mapped(row_dim=True), r"answer\.mapping\.row_dim: given True"),
}  # fmt: skip


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_blamed_on_the_selector(name: str) -> None:
    answer, message = NONSENSE[name]
    problem = Problem.of(product(), NPU2)
    with pytest.raises(od.SolutionError, match=message) as caught:
        select(product(), NPU2, Always(answer))
    assert str(caught.value).startswith(f"Always, problem {problem.digest}, solution for od::gemm@1 on npu2")
    fits = Solution.from_data(caught.value.would_fit)
    assert select(product(), NPU2, Always(fits)).solution == fits


def test_numbers_of_numpy_become_plain_ones() -> None:
    numpy = replace(FITS, tiles=(np.int64(8), np.uint8(8)), k_tile=np.int32(8))  # type: ignore[arg-type]
    numpy = replace(numpy, mapping=replace(PLAIN, rowcast=np.bool_(False)))  # type: ignore[arg-type]
    found = select(product(), NPU2, Always(numpy)).solution
    assert found == FITS and found.name == FITS.name
    assert {type(n) for n in (*found.tiles, found.k_tile)} == {int}


def test_an_answer_that_changes_later_changes_nothing() -> None:
    answer = replace(FITS)
    schedule = select(product(), NPU2, Always(answer))
    object.__setattr__(answer, "tiles", (200, 160))
    assert schedule.tiles == FITS.tiles


class Fickle:
    """Another fitting answer at every call."""

    def __init__(self) -> None:
        self.answers: Iterator[int] = iter(range(1, 1000))

    def select(self, problem: Problem, device: Device) -> Solution:
        tiles = tuple(min(d.extent, next(self.answers)) for d in problem.dims)
        plain = Mapping(None, None, 1, frozenset(), False, tuple(range(len(tiles))))
        return Solution(problem.kernel, plain, tiles, 1)


def test_a_selector_may_change_its_mind() -> None:
    """It is asked once for a nest; what it says then stands in parameters and constants alike."""
    x = np.random.default_rng(5).standard_normal((1, 4, 12, 12)).astype(np.float32)
    models = od.compile(chain()), od.compile(chain(), selector=Fickle())
    answers = [od.InferenceSession(model).run(None, {"x": x})[0] for model in models]
    np.testing.assert_allclose(*answers, rtol=1e-4, atol=1e-5)


def test_what_a_problem_holds_cannot_be_changed() -> None:
    problem = Problem.of(product(activation="tanh"), NPU2)
    for values in (problem.nest.scalars, problem.nest.roles):
        with pytest.raises(TypeError, match="item assignment"):
            values["act"] = "none"  # type: ignore[index]
    again = pickle.loads(pickle.dumps(problem))
    assert again == problem and again.nest == problem.nest and again.digest == problem.digest


def test_a_selector_that_changes_its_problem_spoils_nothing() -> None:
    def spoil(problem: Problem) -> Solution:
        object.__setattr__(problem, "k_extent", 1)
        object.__setattr__(problem, "dims", ())
        return replace(FITS, tiles=())

    expected = search(product(), NPU2)
    with pytest.raises(od.SolutionError, match=Problem.of(product(), NPU2).digest) as caught:
        select(product(), NPU2, Always(spoil))
    assert caught.value.would_fit == expected.to_data()
    assert select(product(), NPU2, SEARCH).solution == expected


@pytest.mark.parametrize("error", [KeyError("gone"), IndexError("list index out of range")])
def test_an_entry_that_a_catalog_lacks(error: Exception) -> None:
    """Says which catalog and problem, and a solution to enter."""

    def lack(problem: Problem) -> Solution:
        raise error

    problem = Problem.of(product(), NPU2)
    with pytest.raises(od.SolutionError, match=r"answer: given no entry \((Key|Index)Error") as caught:
        select(product(), NPU2, Always(lack))
    assert str(caught.value).startswith(f"Always, problem {problem.digest}, solution for od::gemm@1")
    assert "add an entry" in caught.value.remedy.lower() and caught.value.__cause__ is not None
    fits = Solution.from_data(caught.value.would_fit)
    assert select(product(), NPU2, Always(fits)).solution == fits


@pytest.mark.parametrize("error", [StopIteration(), ValueError("two\nlines"), Exception()])
def test_what_a_selector_raises_is_blamed_on_it(error: Exception) -> None:
    def fail(problem: Problem) -> Solution:
        raise error

    with pytest.raises(od.InternalError, match="a solution for od::gemm@1 on npu2, Always"):
        select(product(), NPU2, Always(fail))


def test_a_typed_refusal_of_a_selector_is_told_what_would_fit() -> None:
    def refuse(problem: Problem) -> Solution:
        raise od.SolutionError("my catalog", "no entry")

    with pytest.raises(od.SolutionError, match=r"Always, problem .*, my catalog: given no entry") as caught:
        select(product(), NPU2, Always(refuse))
    assert caught.value.would_fit == search(product(), NPU2).to_data()


def nothing_fits(problem: Problem) -> Solution:
    raise Unsupported("no room for it", "less of it")


def test_where_no_solution_exists_the_node_goes_to_the_host() -> None:
    """The merged operator's parts are asked for first; in strict mode all nodes are told."""
    asked = Always(nothing_fits)
    model = od.compile(chain(), selector=asked)
    assert [row.device for row in model.placement] == ["cpu"] * 3
    assert all(row.reason == "no room for it (nearest: less of it)" for row in model.placement)
    assert len(asked.asked) == 4
    with pytest.raises(od.UnsupportedModelError) as caught:
        od.compile(chain(), selector=asked, fallback="error")
    assert len(caught.value.nodes) == 3 and "no room for it" in caught.value.nodes[0]


class Empty(Search):
    """False, as an empty catalog is."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def __len__(self) -> int:
        return 0

    def select(self, problem: Problem, device: Device) -> Solution:
        self.asked += 1
        return super().select(problem, device)


def test_an_empty_selector_is_asked() -> None:
    empty = Empty()
    od.compile(chain(), selector=empty)
    assert empty.asked == 1


@pytest.mark.parametrize("given", [3, "catalog", Search, object(), {"select": None}])
def test_what_cannot_be_asked_is_no_selector(given: Any) -> None:
    with pytest.raises(od.InputError, match=r"selector.*an object with select\(problem, device\)"):
        od.compile(chain(), selector=given)


SMALL = "core.data_memory_bytes", "memory_tile.memory_bytes"


def many_rows(columns: int) -> tuple[Nest, Device]:
    """A softmax of so many rows of which a core holds one that no column can count all of its own."""
    text = device_text({"device.columns": columns, "device.core_rows": 1, SMALL[0]: 3072, SMALL[1]: 6144})
    device = read_text(text, "small", "small")[0]
    ends = [TensorSpec(name, np.dtype(np.float32), (70_000 * columns, 128)) for name in "xy"]
    lowering, mapping = Lowering(device), mapping_for("", "Softmax")
    lowering.begin(node := NodeSpec("n", "Softmax", "", 17, ends[:1], ends[1:], {}))
    assert mapping is not None
    mapping.function(node, lowering)
    ((_, operator),) = lowering.ops
    return operator.nests()[0], device


@pytest.mark.parametrize("columns", [2, 8])
def test_what_the_search_finds_fits_small_devices_too(columns: int) -> None:
    nest, device = many_rows(columns)
    schedule = select(nest, device)  # it is checked like any other
    assert schedule.mapping.columns == 1
    wide = Solution(nest.kernel.name, replace(PLAIN, col_dim=0, columns=columns), (1, 1), 1)
    with pytest.raises(od.SolutionError, match="at most 65535 in one column") as caught:
        select(nest, device, Always(wide))
    assert Solution.from_data(caught.value.would_fit) == schedule.solution


def test_where_no_memory_tile_holds_anything_the_host_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No device that the overlay takes is so; whatever makes the search give up, the reason stands."""
    monkeypatch.setattr(cost_model, "_cost", lambda load, commands: np.full(len(commands), np.inf))
    model = od.compile(chain(), selector=Search())
    assert [row.device for row in model.placement] == ["cpu"] * 3
    assert "memory tiles" in model.placement[0].reason
    with pytest.raises(od.UnsupportedModelError, match="memory tiles"):
        od.compile(chain(), selector=Search(), fallback="error")
