# SPDX-License-Identifier: Apache-2.0
"""Kernels in C++ as plug-in authors write them: all of ``tests/ops/plugins``, built from the folder.

Nothing is listed but what a kernel computes (``plugin_cases``): names, dtypes and operands are asked of the
libraries. Nodes go the whole way of a model: shapes inferred by the kernel, one transaction, the array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import onedispatch as od
from onedispatch.dispatch.check.kernels import check_file
from onedispatch.dispatch.frontend.importer import import_model
from onedispatch.dispatch.host.own_kernel import OwnKernel
from onedispatch.operators.plugin import registrations
from onedispatch.operators.plugin.check import Options
from onedispatch.operators.plugin.library import LibraryKernel
from onedispatch.transactions import find_device
from tests.devices import device_file
from tests.ops.libraries import compiled
from tests.ops.plugin_cases import REFERENCES, Case, cases
from tests.tables import examples

FOLDER = Path(__file__).parent / "plugins"
SOURCES = sorted(FOLDER.glob("*.cpp"))
LINES_PER_KERNEL = 30  # at most, on average; the published kernels take 165 of glue, beside the body
NAMES = sorted(REFERENCES)

Kernels = Mapping[str, LibraryKernel]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("corpus")
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda source: compiled(source, folder / f"lib{source.stem}.so"), SOURCES))


@pytest.fixture(scope="module")
def kernels(libraries: list[Path]) -> Iterator[Kernels]:
    """All kernels by their name in the namespace."""
    for library in libraries:
        od.plugins.load(library)
    origins = [str(library.resolve()) for library in libraries]
    found = [
        one for one in registrations.kernels() if isinstance(one, LibraryKernel) and one.origin in origins
    ]
    yield {one.kernel.short_name: one for one in found}
    for origin in origins:
        registrations.forget(origin)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A device with one core."""
    return str(device_file(tmp_path_factory.mktemp("device"), "one"))


def answers(case: Case, device: str) -> list[np.ndarray]:
    session = od.InferenceSession(case.model(), device=device, fallback="error")
    made = [np.asarray(one) for one in session.run(None, dict(case.inputs))]
    assert [node.device for node in session.placement] == ["npu"], case.name
    assert session.last_run.dispatches == 1 and session.last_run.cycles > 0, case.name
    return made


# -- what there is -----------------------------------------------------------------------------------


def test_every_kernel_of_the_folder_has_a_reference_and_the_other_way_round(kernels: Kernels) -> None:
    assert sorted(kernels) == NAMES
    assert len(kernels) >= 20


def test_a_kernel_takes_few_lines_with_all_that_belongs_to_it(
    kernels: Kernels, record_property: pytest.RecordProperty
) -> None:
    """Every line of the sources that is neither empty nor a comment: declaration, placing, body, includes."""
    text = "\n".join(source.read_text(encoding="utf-8") for source in SOURCES)
    counted = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("//")]
    average = len(counted) / len(kernels)
    record_property("lines per kernel", average)
    print(f"{len(kernels)} kernels, {len(counted)} lines: {average:.1f} per kernel")
    assert average <= LINES_PER_KERNEL
    assert max(map(len, counted)) <= 170, "nothing gained by long lines"


# -- what they compute -------------------------------------------------------------------------------


@pytest.mark.daily(3)
@pytest.mark.parametrize("name", NAMES)
def test_kernels_compute_what_numpy_does_on_both_devices(kernels: Kernels, name: str) -> None:
    for i, case in enumerate(cases(kernels[name].kernel)):
        case.insist(answers(case, ("npu2", "npu1")[i % 2]))


@pytest.mark.daily(3)
@pytest.mark.parametrize("name", NAMES)
def test_one_core_and_all_cores_give_the_same_bits(kernels: Kernels, name: str, single: str) -> None:
    """Of each dtype the case with the most elements."""
    largest: dict[str, Case] = {}
    for case in cases(kernels[name].kernel):
        first = next(iter(case.inputs.values()))
        seen = largest.get(str(first.dtype))
        if seen is None or first.size > next(iter(seen.inputs.values())).size:
            largest[str(first.dtype)] = case
    for case in largest.values():
        many = answers(case, "npu2")
        for device in (single, "npu1"):
            for one, other in zip(many, answers(case, device), strict=True):
                assert one.tobytes() == other.tobytes(), f"{case.name} on {device}"


@pytest.mark.daily(3)
@pytest.mark.parametrize("name", NAMES)
def test_the_host_gives_the_bits_of_the_array(kernels: Kernels, name: str) -> None:
    """One call for all members, on memory of the host: what runs where the device does not take a node."""
    for case in list(cases(kernels[name].kernel))[::3]:
        graph = import_model(case.model())
        (node,) = graph.nodes
        hosted = OwnKernel(graph, node, node.outputs, {}, find_device("npu2")).run(dict(case.inputs))
        for one, other in zip(answers(case, "npu2"), hosted, strict=True):
            assert one.tobytes() == other.tobytes(), case.name


# What a member reads of a table depends on its indices: declared whole, touched in one place.
WIDE = {"compiled::gather@1"}


@pytest.mark.daily(3)
@pytest.mark.slow
@pytest.mark.parametrize("stem", [source.stem for source in SOURCES])
def test_check_mode_finds_nothing(libraries: list[Path], stem: str) -> None:
    """Members alone, then all in shuffled order and in 32 partitions, on cases made of the declarations."""
    (library,) = [one for one in libraries if one.stem == f"lib{stem}"]
    report = check_file(str(library), Options(alone=examples(512)))
    assert report.kernels
    for name, checked in report.kernels.items():
        assert checked.cases, name
        found = [one for one in checked.findings if one.level == "error" or name not in WIDE]
        assert not found, f"{name}: {list(map(str, found))}"
