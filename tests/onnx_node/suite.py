# SPDX-License-Identifier: Apache-2.0
"""All backend tests of the onnx package, and who passes them by the package's own comparison."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.runner import Runner

from onedispatch import OneDispatchError, backend

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
_PROTOS = {
    "tensor_type": onnx.TensorProto,
    "sequence_type": onnx.SequenceProto,
    "optional_type": onnx.OptionalProto,
}
_DRAWN = ("Bernoulli", "RandomUniformLike")  # every run gives other numbers
# What is expected has rounding errors of 1.9e-7 in place of zeros, beside a tolerance of 1e-7.
_TOLERANCE = dict.fromkeys(("test_dft_inverse", "test_dft_inverse_opset19"), 1e-6)
Run = Callable[[list[Any]], Sequence[Any]]


@cache
def backend_tests(*kinds: str) -> dict[str, Any]:
    """The tests of ``kinds`` by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package computes its own edge cases while loading
        from onnx.backend.test.loader import load_model_tests

        return {test.name: test for kind in kinds for test in load_model_tests(kind=kind)}


@cache
def model_of(name: str) -> onnx.ModelProto:
    """The model of a test, which tests other than of nodes have in a file."""
    test = backend_tests(*KINDS)[name]
    return test.model if test.model is not None else onnx.load(Path(test.model_dir, "model.onnx"))


def operators_of(name: str) -> str:
    """Returns the first operator of a test's model; of a model in a file, the first letters of the test."""
    test = backend_tests(*KINDS)[name]
    if test.model is None:
        return name[: len("test_AvgPool")]
    return str(test.model.graph.node[0].op_type) if test.model.graph.node else "no node"


def data_of(name: str) -> list[tuple[list[Any], list[Any]]]:
    """Inputs and expected outputs of each data set."""
    test, graph = backend_tests(*KINDS)[name], model_of(name).graph
    if test.model is not None:
        return [([value(x) for x in given], [value(x) for x in made]) for given, made in test.data_sets]
    folders = sorted(Path(test.model_dir).glob("test_data_set_*"))
    return [
        (_files(folder, "input", graph.input), _files(folder, "output", graph.output)) for folder in folders
    ]


def _files(folder: Path, kind: str, infos: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    found = []
    for index, info in enumerate(infos):
        path = folder / f"{kind}_{index}.pb"
        if path.exists():
            found.append(value(_PROTOS[info.type.WhichOneof("value")].FromString(path.read_bytes())))
    return found


def value(given: Any) -> Any:
    """Of a proto or of what is one already: an array, a list of arrays, or None."""
    if isinstance(given, onnx.SequenceProto):
        return numpy_helper.to_list(given)
    if isinstance(given, onnx.OptionalProto):
        return numpy_helper.to_optional(given)
    return numpy_helper.to_array(given) if isinstance(given, onnx.TensorProto) else given


def failure(name: str, run: Run) -> str:
    """What a run gives otherwise than the test has it, by onnx's own comparison; empty where it passes."""
    test = backend_tests(*KINDS)[name]
    for inputs, expected in data_of(name):
        outputs = [np.asarray(x) if np.isscalar(x) else x for x in run(inputs)]
        try:
            Runner.assert_similar_outputs(expected, outputs, test.rtol, _TOLERANCE.get(name, test.atol))
        except (AssertionError, TypeError) as error:  # that of sequences of scalars is a TypeError
            return str(error).strip() or type(error).__name__
    return ""


def others_fail(name: str) -> bool:
    """Whether neither onnxruntime nor onnx's reference evaluator passes the test, but by chance."""
    if any(node.op_type in _DRAWN for node in model_of(name).graph.node):
        return True
    for make in (_onnxruntime, _reference):
        try:
            if not failure(name, make(model_of(name))):
                return False
        except Exception:  # noqa: BLE001  whatever they raise, they do not pass
            continue
    return True


def _onnxruntime(model: onnx.ModelProto) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [info.name for info in session.get_inputs()]
    return lambda values: session.run(None, dict(zip(names, values, strict=False)))


def _reference(model: onnx.ModelProto) -> Run:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    return lambda values: evaluator.run(None, dict(zip(evaluator.input_names, values, strict=False)))


def with_fallback(name: str) -> tuple[str, Any]:
    """Why the test does not pass where nodes may go to the host (empty: it does), and the placement."""
    try:
        prepared = backend.prepare(model_of(name), "CPU", fallback="cpu")
        return failure(name, prepared.run), prepared.session.placement
    except OneDispatchError as error:
        return f"{type(error).__name__}: {error}", None
