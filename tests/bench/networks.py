# SPDX-License-Identifier: Apache-2.0
"""Real networks as onnxruntime's own quantiser makes them, beside onnxruntime.

``python -m tests.bench.networks`` prints the table, ``... resnet50 bf16`` the rows whose names contain
one of these. One thread both, runs of both sides in turn, medians of CPU time, so that a busy machine
disturbs little. ``bf16`` stands beside onnxruntime's float32, ``w4`` (a language model's packed weights)
beside the same file. What the quantiser makes is kept in ``FOLDER``, since that takes longer than all runs.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime

import onedispatch as od
from onedispatch.dispatch.tools import zoo
from tests.e2e.quantised_models import Scheme, quantised
from tests.e2e.test_packed_llama import packed

FOLDER = Path(tempfile.gettempdir()) / "onedispatch-quantised"
LIGHT = Path(__file__).resolve().parents[2] / "models" / "light"
SCHEME = Scheme("u8", "s8", per_channel=True)
INTEGERS = ("resnet50", "mobilenet_v2", "bert_base", "vit_small", "detector", "text_line")
BF16 = ("resnet50", "bert_base")
SEED, RUNS = 0, 5


@dataclass(frozen=True)
class Row:
    """Milliseconds of one run."""

    name: str
    ours: float
    theirs: float
    modelled: float
    dispatches: int

    def __str__(self) -> str:
        ratio = self.ours / self.theirs
        return (
            f"| {self.name} | {self.ours:.1f} | {self.theirs:.1f} | {ratio:.1f} | {self.modelled:.3f} |"
            f" {self.dispatches} |"
        )


def floats(name: str) -> onnx.ModelProto:
    """With random weights."""
    return zoo.randomised(zoo.find_model(str(LIGHT / f"{name}.onnx")), SEED)


def kept(name: str, make: Callable[[], onnx.ModelProto]) -> onnx.ModelProto:
    """What was made before, else what ``make`` makes now."""
    path = FOLDER / f"{name}.onnx"
    if not path.exists():
        FOLDER.mkdir(exist_ok=True)
        onnx.save(make(), path)
    return onnx.load(path)


def integers(name: str) -> onnx.ModelProto:
    """QDQ of the scheme; calibrated with inputs like those that it runs with."""
    model = floats(name)
    with tempfile.TemporaryDirectory() as folder:
        feeds = [zoo.random_input(model, seed) for seed in range(2)]
        return quantised(model, SCHEME, Path(folder), feeds)


def cases() -> Iterator[tuple[str, Callable[[], onnx.ModelProto], str]]:
    """Name, the model and our precision."""
    for name in INTEGERS:
        yield f"{name} {SCHEME}", lambda name=name: integers(name), "fp32"
    for name in BF16:
        yield f"{name} bf16", lambda name=name: floats(name), "bf16"
    yield "llama_step w4", lambda: packed(floats("llama_step"), 4), "bf16"


def measure(name: str, model: onnx.ModelProto, precision: str) -> Row:
    feed = zoo.random_input(model, SEED)
    session = od.InferenceSession(model, precision=precision, fallback="error", threads=1)
    reference = session_of_onnxruntime(model)
    ours, theirs = medians(lambda: session.run(None, feed), lambda: reference.run(None, feed))
    report = session.last_run
    assert report is not None
    return Row(name, ours, theirs, report.seconds * 1e3, report.dispatches)


def session_of_onnxruntime(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def medians(*sides: Callable[[], object]) -> list[float]:
    """CPU milliseconds of a call of each side, in turn; the first two of each are not counted."""
    taken: list[list[float]] = [[] for _ in sides]
    for run in range(RUNS + 2):
        for side, once in zip(taken, sides, strict=True):
            start = time.process_time()
            once()
            if run >= 2:
                side.append(time.process_time() - start)
    return [1e3 * statistics.median(one) for one in taken]


def main(wanted: list[str]) -> None:
    """Prints the table as it is measured."""
    print(
        "| network | ours, ms | onnxruntime, ms | ratio | modelled, ms | dispatches |\n"
        "|---|---|---|---|---|---|"
    )
    for name, make, precision in cases():
        if wanted and not any(part in name for part in wanted):
            continue
        file = name if precision == "fp32" else name.replace("bf16", "fp32")
        print(measure(name, kept(file.replace(" ", "_"), make), precision), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
