# SPDX-License-Identifier: Apache-2.0
"""What a solution costs by the clock, and the tuner: never worse than the search, also if processes die."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper, parser

import onedispatch as od
from onedispatch.dispatch.tuning.collect import problems_of
from onedispatch.dispatch.tuning.explore import Answer, Measure, Refused, Tuning
from onedispatch.dispatch.tuning.tune import tune
from onedispatch.operators.catalog import log
from onedispatch.operators.scheduling.problem import Problem
from onedispatch.operators.scheduling.search import search
from onedispatch.operators.scheduling.select import SEARCH
from onedispatch.operators.scheduling.solution import Mapping as Laid
from onedispatch.operators.scheduling.solution import Solution
from onedispatch.transactions import Device, find_device

pytest.importorskip("onedispatch.cpp_ext._core", reason="the C++ extension is not built")

NPU2 = find_device("npu2")
HEAD = '<ir_version: 8, opset_import: ["": 21]> g '


def network(text: str) -> bytes:
    """The model, with weights for each value that it declares between angle brackets."""
    model, rng = parser.parse_model(HEAD + text), np.random.default_rng(7)
    for info in model.graph.value_info:
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        weights = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, info.name))
    return model.SerializeToString()


def products(count: int, rows: int = 128, size: int = 256) -> bytes:
    """A chain of matrix products of one shape, with weights of their own."""
    weights = ", ".join(f"float[{size}, {size}] w{i}" for i in range(count))
    text = " ".join(f"v{i + 1} = MatMul(v{i}, w{i})" for i in range(count))
    ends = f"(float[{rows}, {size}] v0) => (float[{rows}, {size}] v{count})"
    return network(f"{ends} <{weights}> {{ {text} }}")


def posed(model: bytes, groups: str = "off", device: str = "npu2") -> Mapping[Problem, int]:
    return problems_of(lambda chosen: od.compile(model, device, selector=chosen, groups=groups))


@pytest.fixture(scope="module")
def product() -> Problem:
    ((problem, count),) = posed(products(3)).items()
    assert count == 3
    return problem


@pytest.fixture(scope="module")
def small() -> Mapping[Problem, int]:
    """Problems that are measured in few milliseconds each."""
    text = "(float[6, 40] x) => (float[6, 40] y) { a = Exp(x) b = Softmax(a) y = Sigmoid(b) }"
    return posed(network(text))


# -- measuring -----------------------------------------------------------------------------------


def test_a_measure_is_what_an_operator_adds_to_a_network(product: Problem) -> None:
    solution, count = search(product.nest, NPU2), 6
    report = od.compile(products(count), "npu2", groups="off").timing()
    each = [row.cycles for row in report.ops]
    measured = od.measure(product, solution, "npu2")
    assert each[1:-1] == [measured] * (count - 2)
    assert each[0] > measured  # nothing was at work while its descriptors were written


def test_descriptors_that_no_work_hides_are_counted() -> None:
    """What the last nest of a transaction takes lacks what it would write ahead for another."""
    sums = "".join(f"v{i + 2} = Add(v{i}, v{i + 1}) " for i in range(5))
    model = network(f"(float[12544] v0, float[12544] v1) => (float[12544] v6) {{ {sums} }}")

    class Small:
        def select(self, problem: Problem, device: Device) -> Solution:
            return Solution(problem.kernel, Laid(0, 0, 8, frozenset(), False, (0,)), (392,), 1)

    each = [row.cycles for row in od.compile(model, "npu2", groups="off", selector=Small()).timing().ops]
    ((problem, _),) = posed(model).items()
    measured = od.measure(problem, Small().select(problem, NPU2), NPU2)
    assert each[1:-1] == [measured] * 3
    assert each[-1] < measured / 2


def test_a_run_of_one_nest_takes_its_measure_and_what_a_network_takes_to_start(product: Problem) -> None:
    measured = od.measure(product, search(product.nest, NPU2), NPU2)
    alone, several = (od.compile(products(n), "npu2", groups="off").timing().cycles for n in (1, 5))
    start = several - 5 * measured
    assert 0 < start == pytest.approx(alone - measured, rel=0.02)


def test_equal_arguments_give_equal_cycles_in_threads_and_processes(product: Problem) -> None:
    solution = search(product.nest, NPU2)
    other = replace(solution, mapping=replace(solution.mapping, order=solution.mapping.order[::-1]))
    alone = [od.measure(product, one, NPU2) for one in (solution, other)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: od.measure(product, one, NPU2), [solution, other] * 8))
    assert found == alone * 8
    with multiprocessing.get_context("spawn").Pool(1) as processes:
        assert processes.apply(od.measure, (product, solution, NPU2)) == alone[0]


def test_a_forked_child_measures(product: Problem) -> None:
    solution = search(product.nest, NPU2)
    expected = od.measure(product, solution, NPU2)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(od.measure(product, solution, NPU2)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        assert said.read() == str(expected)
    assert os.waitpid(child, 0)[1] == 0


def test_what_cannot_be_measured_is_a_typed_error(product: Problem) -> None:
    solution = search(product.nest, NPU2)
    with pytest.raises(od.SolutionError, match="Use that device"):
        od.measure(product, solution, "npu1")
    with pytest.raises(od.SolutionError, match="tile of"):
        od.measure(product, replace(solution, tiles=(0, *solution.tiles[1:])), "npu2")
    with pytest.raises(od.SolutionError, match="Use the version that wrote the problem"):
        od.measure(replace(product, declaration=1), solution, "npu2")
    with pytest.raises(od.DeviceError):
        od.measure(product, solution, "npu9")
    with pytest.raises(od.InputError, match="solution"):
        od.measure(product, "fast", "npu2")  # type: ignore[arg-type]


GROUPED = """(float[1, 16, 32, 32] x) => (float[1, 16, 32, 32] y) <float[16, 16, 3, 3] w> {
    a = Conv <pads = [1, 1, 1, 1]> (x, w) b = Relu(a) c = Conv <pads = [1, 1, 1, 1]> (b, w)
    d = Add(c, x) e = Relu(d) y = Conv <pads = [1, 1, 1, 1]> (e, w) }"""


@pytest.mark.parametrize("device", ["npu1", "npu2"])
def test_nests_of_kept_tensors_are_measured_in_their_places(device: str) -> None:
    model = network(GROUPED)
    compiled = od.compile(model, device, groups="on")
    found = posed(model, "on", device)
    kept = [one for one in found if one.occupied and found[one]]
    assert any(x.buffer for one in kept for x in one.nest.strided)
    on = find_device(device)
    total = sum(n * od.measure(one, search(one.nest, on), on) for one, n in found.items())
    assert total == pytest.approx(sum(row.cycles for row in compiled.timing().ops), rel=0.25)


def recurrent(steps: int) -> bytes:
    return network(
        f"(float[{steps}, 1, 64] x) => (float[{steps}, 1, 1, 64] y) "
        "<float[1, 256, 64] w, float[1, 256, 64] r> { y = LSTM <hidden_size = 64> (x, w, r) }"
    )


def test_of_nests_that_find_a_constant_in_the_cores_those_that_do_are_counted() -> None:
    sums, cycles = [], []
    for steps in (8, 24):
        found = posed(recurrent(steps))
        assert any(one.nest.resident_operands for one in found)
        sums.append(sum(n * od.measure(one, search(one.nest, NPU2), NPU2) for one, n in found.items()))
        cycles.append(od.compile(recurrent(steps), "npu2", groups="off", selector=SEARCH).timing().cycles)
    assert sums[1] - sums[0] == pytest.approx(cycles[1] - cycles[0], rel=0.03)


# -- tuning --------------------------------------------------------------------------------------


def ends(tunings: list[Tuning]) -> list[tuple[Solution | None, int | None, int | None]]:
    return [(one.best, one.before, one.after) for one in tunings]


@pytest.fixture(scope="module")
def tuned(small: Mapping[Problem, int]) -> list[Tuning]:
    return tune(small, "npu2")


def test_the_tuned_solution_is_never_worse_and_some_are_better(tuned: list[Tuning]) -> None:
    for one in tuned:
        assert one.start is not None and one.best is not None
        assert one.before == od.measure(one.problem, one.start, NPU2)
        assert one.after == od.measure(one.problem, one.best, NPU2)
        assert one.after <= one.before
        assert one.after == min(cycles for cycles in one.tried.values() if cycles is not None)
        assert one.start == search(one.problem.nest, NPU2)
    assert any(one.after < one.before for one in tuned if one.after and one.before)


@pytest.mark.parametrize(("jobs", "workers"), [(3, "threads"), (2, "processes")])
def test_workers_change_nothing(
    small: Mapping[Problem, int], tuned: list[Tuning], tmp_path: Path, jobs: int, workers: str
) -> None:
    found = tune(small, NPU2, jobs=jobs, workers=workers, log=tmp_path / "log")
    assert ends(found) == ends(tuned)
    rows = log.read(tmp_path / "log")
    assert (
        len(rows)
        == len({(row.problem, row.solution) for row in rows})
        == sum(len(one.tried) for one in found)
    )


def test_without_time_what_the_search_chooses_is_measured(small: Mapping[Problem, int]) -> None:
    for one in tune(small, "npu2", 0):
        assert one.before is not None and one.after == one.before
        assert list(one.tried) == [one.start]


def test_a_log_is_not_measured_again(
    small: Mapping[Problem, int], tuned: list[Tuning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    tune(small, NPU2, 0, log=path)
    begun = log.read(path)
    assert ends(tune(small, NPU2, log=path)) == ends(tuned)
    rows = log.read(path)
    assert rows[: len(begun)] == begun and len(rows) == sum(len(one.tried) for one in tuned)

    def never(task: Measure, device: Device) -> Answer:
        raise AssertionError(f"measured again: {task.solution}")

    monkeypatch.setattr(Measure, "done", never)
    assert ends(tune(small, NPU2, log=path)) == ends(tuned)
    assert log.read(path) == rows


def test_rows_of_other_versions_are_measured_again(small: Mapping[Problem, int], tmp_path: Path) -> None:
    path, other = tmp_path / "log", tmp_path / "other"
    tune(small, NPU2, 0, log=path)
    log.append(other, [replace(row, version="0.0.1", cycles=1) for row in log.read(path)])
    assert all(one.before and one.before > 1 for one in tune(small, NPU2, 0, log=other))


def test_a_solution_that_does_not_run_is_said_and_passed_over(
    small: Mapping[Problem, int], tuned: list[Tuning], monkeypatch: pytest.MonkeyPatch
) -> None:
    best, done = {one.best for one in tuned}, Measure.done

    def fails(task: Measure, device: Device) -> Answer:
        return Refused("a deadlock", True) if task.solution in best else done(task, device)

    monkeypatch.setattr(Measure, "done", fails)
    found = tune(small, NPU2)
    assert "a deadlock" in {reason for one in found for reason in one.failed}
    assert not best & {one.best for one in found}


def test_wrong_arguments_are_typed_errors(small: Mapping[Problem, int], tmp_path: Path) -> None:
    for given in (
        {"jobs": 0},
        {"workers": "machines"},
        {"budget_seconds": -1.0},
        {"budget_seconds": float("nan")},
    ):
        with pytest.raises(od.InputError, match=next(iter(given))):
            tune(small, "npu2", **given)  # type: ignore[arg-type]
    with pytest.raises(od.SolutionError, match="Use that device"):
        tune(small, "npu1")
    (tmp_path / "log").write_text("nothing of ours\n")
    with pytest.raises(od.CatalogError):
        tune(small, "npu2", log=tmp_path / "log")


def children() -> list[int]:
    """Workers of this process: none of the processes that multiprocessing keeps beside them."""
    listed = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    found = [int(one) for file in listed for one in file.read_text().split()]
    return [one for one in found if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_worker_process_that_dies_loses_nothing(
    small: Mapping[Problem, int], tuned: list[Tuning], tmp_path: Path
) -> None:
    path, killed = tmp_path / "log", list[int]()

    def kill(tunings: object) -> None:
        rows = len(log.read(path)) if path.exists() else 0
        if len(killed) < 2 and rows >= 5 * (len(killed) + 1):
            killed.append(children()[0])
            os.kill(killed[-1], signal.SIGKILL)

    found = tune(small, NPU2, log=path, jobs=2, workers="processes", progress=kill)
    assert len(killed) == 2 and ends(found) == ends(tuned)
    rows = log.read(path)
    assert len(rows) == sum(len(one.tried) for one in tuned)


def test_a_program_without_a_guard_is_told_of_it(problems_file: Path, tmp_path: Path) -> None:
    """Its workers import it, and would begin to tune as well."""
    program = tmp_path / "program.py"
    program.write_text(
        "import json\nfrom pathlib import Path\nfrom onedispatch.dispatch.tuning.tune import tune\n"
        "from onedispatch.operators.scheduling.problem import Problem\n"
        f"problems = map(Problem.from_data, json.loads(Path({str(problems_file)!r}).read_text()))\n"
        "tune(dict.fromkeys(problems, 1), 'npu2', jobs=2, workers='processes')\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, timeout=200)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and "InternalError" not in done.stderr
    assert "ResourceError: worker processes: given processes that end as they begin" in last
    assert """under 'if __name__ == "__main__":'""" in last


def test_what_a_callers_progress_raises_is_said_to_be_its_own(
    small: Mapping[Problem, int], tmp_path: Path
) -> None:
    def progress(tunings: Sequence[Tuning]) -> None:
        if any(one.tried for one in tunings):
            raise ValueError("no more paper")

    with pytest.raises(od.InternalError, match=r"progress of tune, .*ValueError: no more paper.*author"):
        tune(small, NPU2, log=tmp_path / "log", progress=progress)
    assert log.read(tmp_path / "log")


# -- the command ---------------------------------------------------------------------------------


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "onedispatch.dispatch.cli", "tune", *map(str, arguments)]


def ran(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False, timeout=200)


@pytest.fixture(scope="module")
def problems_file(small: Mapping[Problem, int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("problems") / "problems.json"
    path.write_text(json.dumps([one.to_data() for one, count in small.items() for _ in range(count)]))
    return path


@pytest.mark.parametrize(
    ("size", "hint"),
    [("3", "can be tuned runs on the device. See why: onedispatch inspect"), ("n", "--shape")],
)
def test_models_without_problems_say_what_to_do(tmp_path: Path, size: str, hint: str) -> None:
    graph = f"(float[{size}] x) => (float[{size}] y) {{ y = Bernoulli(x) }}"
    (tmp_path / "m.onnx").write_bytes(parser.parse_model(HEAD + graph).SerializeToString())
    done = ran(tmp_path / "m.onnx", "--log", tmp_path / "log")
    said = " ".join(done.stderr.split())
    assert done.returncode and hint in said and ("--shape" in said) == (size == "n")


def test_the_command_tunes_models_and_problems(
    problems_file: Path, small: Mapping[Problem, int], tuned: list[Tuning], tmp_path: Path
) -> None:
    done = ran(problems_file, "--log", tmp_path / "log", "--budget", "3m", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert {row["problem"]: row["after"] for row in said["problems"]} == {
        one.problem.digest: one.after for one in tuned
    }
    assert said["before"] == sum(one.weight * (one.before or 0) for one in tuned)
    model = tmp_path / "model.onnx"
    model.write_bytes(products(2, 16, 32))
    done = ran(model, "--log", tmp_path / "log", "--budget", "1s", "--groups", "off", "--device", "npu1")
    assert done.returncode == 0, done.stderr
    assert f"{model.name}:all2nodesontheNPUinonedispatch;" in "".join(done.stdout.split())
    assert "od::gemm@1" in done.stdout and "ratio" in done.stdout and "16 x 32 x 32" in done.stdout
    assert Counter(row.problem.device.split("@")[0] for row in log.read(tmp_path / "log"))["npu1"] > 0


@pytest.mark.daily(2)
@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (
            "[]",
            ("--budget", "soon"),
            "given 'soon'; accepted: a number of seconds, minutes or hours",
        ),
        ("{}", (), "accepted: a JSON list of problems"),
        ("[1]", (), "SolutionError: problem"),
        ("[", (), "no JSON"),
        ("[]", ("--jobs", "0"), "jobs: given 0"),
    ],
)
def test_errors_of_the_command_teach(tmp_path: Path, text: str, options: tuple[str, ...], said: str) -> None:
    path = tmp_path / "problems.json"
    path.write_text(text)
    done = ran(path, "--log", tmp_path / "log", *options)
    assert done.returncode == 1 and said in done.stderr.replace("\n", " "), done.stderr


def test_a_killed_command_loses_what_it_was_measuring_at_most(problems_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "log"
    process = subprocess.Popen(
        command(problems_file, "--log", path), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    end = time.monotonic() + 100
    while time.monotonic() < end and (not path.exists() or len(log.read(path)) < 6):
        time.sleep(0.01)
    process.kill()
    process.wait(60)
    rows = log.read(path)
    assert len(rows) >= 6
    done = ran(problems_file, "--log", path, "--budget", "3m", "--json")
    assert done.returncode == 0, done.stderr
    found = log.read(path)
    assert found[: len(rows)] == rows
    assert len({(row.problem, row.solution) for row in found}) == len(found)


# -- a cluster -----------------------------------------------------------------------------------


def test_machines_of_a_cluster_tune_and_one_that_dies_loses_nothing(
    small: Mapping[Problem, int], tuned: list[Tuning], tmp_path: Path
) -> None:
    distributed = pytest.importorskip("distributed")
    path, killed = tmp_path / "log", threading.Event()
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        local_directory=str(tmp_path),
    ) as cluster:

        def kill(tunings: object) -> None:
            if not killed.is_set() and path.exists() and len(log.read(path)) >= 6:
                killed.set()
                os.kill(next(iter(cluster.workers.values())).process.process.pid, signal.SIGKILL)

        found = tune(small, NPU2, log=path, scheduler=cluster.scheduler_address, progress=kill)
    assert killed.is_set() and ends(found) == ends(tuned)


def test_without_a_cluster_at_the_address(
    small: Mapping[Problem, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(od.InputError, match=r"pip install onedispatch\[tune\]"):
        tune(small, NPU2, scheduler="tcp://127.0.0.1:1")
