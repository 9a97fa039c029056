# SPDX-License-Identifier: Apache-2.0
"""Networks beside onnxruntime: the table of ``onedispatch bench`` for all of ``models/light`` and small ones.

``python -m tests.bench.networks`` prints it, one and two threads, in fp32, int8 and bf16; names choose rows:
``... resnet50 bert_base --precision int8 --threads 1 --json``. What the quantiser makes is kept in
``FOLDER``, since that takes longer than all runs. ``llama_step_w4`` has a language model's packed weights,
on both sides.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import onnx

from onedispatch.dispatch.cli.bench import BenchFlags, measured, show
from onedispatch.dispatch.tools import zoo
from onedispatch.dispatch.tools.beside import PRECISIONS, Measured, prepared
from tests.e2e.test_packed_llama import packed

FOLDER = Path(tempfile.gettempdir()) / "onedispatch-quantised"
MODELS = Path(__file__).resolve().parents[2] / "models"
LIGHT = {path.stem: path for path in sorted((MODELS / "light").glob("*.onnx"))}
SEED, RUNS = 0, 5


def floats(name: str) -> onnx.ModelProto:
    """With random weights, but for the one that was trained."""
    if name == "digits":
        return zoo.find_model(str(MODELS / "digits.onnx"))
    if name == "llama_step_w4":
        return packed(floats("llama_step"), 4)
    return zoo.randomised(zoo.find_model(str(LIGHT[name])), SEED)


NAMES = ("digits", *LIGHT, "llama_step_w4")


def kept(name: str, make: Callable[[], onnx.ModelProto]) -> onnx.ModelProto:
    """What was made before, else what ``make`` makes now."""
    path = FOLDER / f"{name}.onnx"
    if not path.exists():
        FOLDER.mkdir(exist_ok=True)
        onnx.save(make(), path)
    return onnx.load(path)


def model(name: str, precision: str) -> onnx.ModelProto:
    if precision != "int8":
        return floats(name)
    return kept(f"{name}_int8", lambda: prepared(floats(name), precision, SEED))


def rows(names: list[str], flags: BenchFlags) -> list[Measured]:
    return [
        row
        for precision in flags.precisions
        for name in names
        if not (name == "llama_step_w4" and precision == "int8")  # its weights are integers
        for row in measured(name, model(name, precision), flags, precision)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}; all of them if none is given")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=[*PRECISIONS])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if unknown := {*given.names} - {*NAMES}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    flags = BenchFlags(threads=given.threads, runs=given.runs, precision=given.precision, seed=SEED)
    flags.check()
    show(rows(given.names or [*NAMES], flags), given.json)


if __name__ == "__main__":
    main()
