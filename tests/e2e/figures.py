# SPDX-License-Identifier: Apache-2.0
"""What the examples cost on the modelled devices: the rows of models/figures/costs.md.

``make figures`` writes the table anew, ``make figures ONLY=squeezenet`` the rows whose example has that
in its name. tests/e2e/test_figures.py and test_networks.py compare each row exactly, so that no
change moves a figure unnoticed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import onedispatch as od
from onedispatch.dispatch.base.precisions import PRECISIONS
from onedispatch.dispatch.runtime.report import RunReport
from onedispatch.dispatch.tools import zoo
from tests.ops.case import Case, case, f32, integers, value, weight

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "models" / "figures" / "costs.md"
DIGITS = ROOT / "models" / "digits.onnx"
HEAD = """\
# What the examples cost on the modelled devices

Cycles and bytes of one run each, as the simulator counts them; milliseconds are `last_run.seconds`,
without the host's launch. They depend on the code alone, so tests compare them exactly. `make figures`
writes this file: commit it together with the change that moved a figure, and say why in the message.
Wall clock is no part of it (`make bench`). Weights are random, the networks' last Softmax is dropped.
Networks with "bf16" in their name are the float32 ones with `precision="bf16"`.

| example | device | cycles | ms | DDR bytes read | DDR bytes written | dispatches |
|---|---|---:|---:|---:|---:|---:|
"""
REMEDY = "if that is meant, `make figures` (ONLY=part of a name) and say why in the commit's message"

# name, batch, height and width; whatever the model has where None. tests/e2e/test_networks.py runs them.
NETWORKS: list[tuple[str, int | None, int | None]] = [
    ("light_squeezenet", None, None),
    ("light_squeezenet", 3, 187),
    ("light_resnet50", None, None),
    ("light_resnet50", 3, None),
    ("light_vgg19", None, None),
    ("light_vgg19", 3, None),
    ("light_bvlc_alexnet", None, None),
    ("light_zfnet512", None, None),
    ("light_shufflenet", None, None),
    ("light_inception_v1", None, None),
    ("light_inception_v2", 2, None),
    ("light_densenet121", None, None),
]
# What models/export wrote of published architectures, weights taken out.
EXPORTED = [(str(path), None, None) for path in sorted((ROOT / "models" / "light").glob("*.onnx"))]
DEVICES = ("npu1", "npu2", "npu2_2col")
OPERATORS: dict[str, Case] = {
    "MatMul 256 x 512 x 384": case("MatMul", f32(256, 512), weight(512, 384)),
    "MatMul of computed 256 x 512 x 384": case("MatMul", f32(256, 512), f32(512, 384)),
    "MatMulInteger 512 x 512 x 512": case("MatMulInteger", *[integers("int8", 512, 512)] * 2),
    "Conv 3 x 3, 64 x 28 x 28": case("Conv", f32(1, 64, 28, 28), weight(64, 64, 3, 3), pads=[1, 1, 1, 1]),
    "Conv 7 x 7 by 2, 3 x 112 x 112": case(
        "Conv", f32(1, 3, 112, 112), weight(32, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3]
    ),
    "depthwise Conv 3 x 3, 64 x 28 x 28": case(
        "Conv", f32(1, 64, 28, 28), weight(64, 1, 3, 3), group=64, pads=[1, 1, 1, 1]
    ),
    "MaxPool 3 x 3 by 2, 64 x 56 x 56": case(
        "MaxPool", f32(1, 64, 56, 56), kernel_shape=[3, 3], strides=[2, 2]
    ),
    "Softmax 512 x 1024": case("Softmax", f32(512, 1024), axis=1),
    "Softmax 32768 x 8": case("Softmax", f32(32768, 8), axis=1),
    "LayerNormalization 512 x 768": case("LayerNormalization", f32(512, 768), weight(768), weight(768)),
    "Add 64 x 56 x 56 + 64 x 1 x 1": case("Add", f32(64, 56, 56), f32(64, 1, 1)),
    "Erf 256 x 1024": case("Erf", f32(256, 1024)),
    "ReduceMean 256 x 1024": case("ReduceMean", f32(256, 1024), value([1], "int64")),
    "Transpose 512 x 384": case("Transpose", f32(512, 384), perm=[1, 0]),
    "Concat 256 x 128 + 256 x 64": case("Concat", f32(256, 128), f32(256, 64), axis=1),
}  # fmt: skip


@dataclass(frozen=True)
class Example:
    """A model on a device; ``run`` compiles and runs it and returns its report."""

    name: str
    device: str
    run: Callable[[], RunReport]

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.device


def network_name(name: str, batch: int | None, image: int | None, precision: str = "fp32") -> str:
    """How the table names one of ``NETWORKS`` or of ``EXPORTED``."""
    parts = [Path(name).stem, f"batch {batch}" if batch else "", f"{image} x {image}" if image else ""]
    return ", ".join(part for part in (*parts, precision if precision != "fp32" else "") if part)


def precisions_of(name: str, batch: int | None, image: int | None) -> tuple[str, ...]:
    """In which precisions the table has a network: all for what models/export wrote, and for ResNet-50."""
    known = (*EXPORTED, ("light_resnet50", None, None))
    return tuple(PRECISIONS) if (name, batch, image) in known else ("fp32",)


def _run(
    model: Any, feed: dict[str, np.ndarray[Any, Any]], device: str, precision: str = "fp32"
) -> RunReport:
    session = od.InferenceSession(model, device=device, precision=precision, fallback="error")
    session.run(None, feed)
    if session.last_run is None:
        raise RuntimeError("session.run leaves a report")
    return session.last_run


def _network(
    name: str, batch: int | None, image: int | None, device: str, precision: str = "fp32"
) -> Example:
    def run() -> RunReport:
        model = zoo.randomised(zoo.find_model(name), seed=3, batch=batch, image=image)
        return _run(model, zoo.random_input(model, seed=4), device, precision)

    return Example(network_name(name, batch, image, precision), device, run)


def _digits(images: int, device: str) -> Example:
    def run() -> RunReport:
        return _run(onnx.load(DIGITS), {"image": np.ones((images, 1, 8, 8), np.float32)}, device)

    return Example(f"digits, batch {images}", device, run)


def _operator(name: str, one: Case, device: str) -> Example:
    return Example(name, device, lambda: _run(one.model, one.feed, device))


SLOW = [
    _network(*network, "npu2", precision)
    for network in (*NETWORKS, *EXPORTED)
    for precision in precisions_of(*network)
]
QUICK = [
    *(_network("light_squeezenet", None, None, device) for device in DEVICES if device != "npu2"),
    *(_digits(images, device) for images in (1, 197) for device in DEVICES),
    *(_operator(name, one, device) for name, one in OPERATORS.items() for device in DEVICES),
]
EXAMPLES = [*SLOW, *QUICK]


def row(key: tuple[str, str], report: RunReport) -> str:
    """The line of the table that says what a run cost."""
    counts = (report.ddr_bytes_read, report.ddr_bytes_written, report.dispatches)
    figures = (f"{report.cycles:,}", f"{report.seconds * 1e3:.4f}", *(f"{n:,}" for n in counts))
    return f"| {' | '.join((*key, *figures))} |"


def committed() -> dict[tuple[str, str], str]:
    """The table's lines by example and device."""
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    cells = [(line, line.strip("| ").split(" | ")) for line in lines[1:]]
    return {(cell[0], cell[1]): line for line, cell in cells}


def compare(key: tuple[str, str], report: RunReport) -> None:
    """Fails where a run costs other than the table says."""
    before, now = committed().get(key, "(no row)"), row(key, report)
    if before != now:
        table = TABLE.relative_to(ROOT)
        raise AssertionError(f"other figures than {table} has; {REMEDY}\n  table: {before}\n  now:   {now}")


def text(rows: dict[tuple[str, str], str]) -> str:
    """The whole file."""
    return HEAD + "".join(f"{rows[one.key]}\n" for one in EXAMPLES if one.key in rows)


def main(parts: Sequence[str]) -> None:
    rows = committed()
    for one in EXAMPLES:
        if one.key not in rows or not parts or any(part in one.name for part in parts):
            rows[one.key] = row(one.key, one.run())
            print(rows[one.key], flush=True)
    TABLE.write_text(text(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
