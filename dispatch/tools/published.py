# SPDX-License-Identifier: Apache-2.0
"""Compares the modelled time of whole runs with published measurements on silicon.

The runs are those that this package can express: networks from the onnx package's light models, quantised by
onnxruntime's quantiser, and single products. The measured runs had the schedules of the vendor or of another
project, and weights are random here: a modelled time is comparable with a published one, not a reproduction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import onnx
from onnx import ModelProto, helper

from onedispatch.dispatch.tools import zoo
from onedispatch.dispatch.tools.quantising import quantised

RESNET50 = "int8 ResNet-50, 224 x 224"
PROVIDER = "mean of session.run with AMD's Vitis AI provider, the host's part included"
UNTUNED = "one user's kernel, its host's part included"


@dataclass(frozen=True)
class PublishedRun:
    """A published measurement: workload, device, milliseconds, source, and how it differs from our run."""

    name: str
    device: str
    milliseconds: float
    source: str
    differs: str
    make: Callable[[], ModelProto]


@dataclass(frozen=True)
class RunComparison:
    """A measured and a modelled time, in milliseconds; ``ratio`` is (modelled + launch) / published."""

    name: str
    device: str
    published: float
    modelled: float
    launch: float
    ratio: float
    source: str
    differs: str


def measurements() -> tuple[PublishedRun, ...]:
    """Returns all measurements, by source."""
    clock = "clock not stated, 1.0 to 1.8 GHz: 1 GHz here"
    products = (
        PublishedRun(
            f"MatMulInteger {m} x {k} x {n}",
            "npu2_4col",
            milliseconds,
            "a user's log, Strix, 16 cores",
            UNTUNED,
            partial(_product, m, k, n),
        )
        for m, k, n, milliseconds in (
            (256, 1024, 1024, 1.041),
            (512, 2048, 2048, 5.553),
            (1024, 4096, 4096, 35.836),
        )
    )
    return (
        PublishedRun(RESNET50, "npu1", 5.68, "a user's log, Hawk Point", f"{PROVIDER}; {clock}", _resnet50),
        PublishedRun(RESNET50, "npu1", 5.24, "AMD's log", f"{PROVIDER}; device not named", _resnet50),
        PublishedRun(RESNET50, "npu1", 5.74, "AMD's table", f"{PROVIDER}; device not named", _resnet50),
        *products,
    )


def compare_runs(measurements: tuple[PublishedRun, ...]) -> Iterator[RunComparison]:
    """Models each run and yields its comparison.

    Raises ``UnsupportedModelError`` if a node does not map.
    """
    from onedispatch.dispatch.runtime.session import InferenceSession

    known: dict[tuple[str, str], tuple[float, float]] = {}
    for one in measurements:
        key = (one.name, one.device)
        if key not in known:
            proto = one.make()
            session = InferenceSession(proto, one.device, fallback="error")
            session.run(None, zoo.random_input(proto))
            report = session.last_run
            known[key] = (1e3 * report.seconds, 1e3 * report.launch_seconds) if report else (0.0, 0.0)
        modelled, launch = known[key]
        ratio = (modelled + launch) / one.milliseconds
        yield RunComparison(
            one.name, one.device, one.milliseconds, modelled, launch, ratio, one.source, one.differs
        )


def _product(m: int, k: int, n: int) -> ModelProto:
    kinds = [onnx.TensorProto.INT8, onnx.TensorProto.INT8, onnx.TensorProto.INT32]
    a, b, y = (
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in zip("aby", kinds, ([m, k], [k, n], [m, n]), strict=True)
    )
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "product", [a, b], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _resnet50() -> ModelProto:
    """Returns the onnx package's ResNet-50 with random weights, quantised to int8 weights and activations."""
    model = zoo.randomised(zoo.find_model("light_resnet50"))
    return quantised(model, [zoo.random_input(model)])
