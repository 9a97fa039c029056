# SPDX-License-Identifier: Apache-2.0
"""Reading the file of a compiled model: every part has its form, and the parts fit each other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from onedispatch.dispatch.artifact.consistency import check_consistent
from onedispatch.dispatch.artifact.constants import bytes_of
from onedispatch.dispatch.artifact.container import Reader, is_compiled
from onedispatch.dispatch.artifact.model import FORM, CompiledModel
from onedispatch.dispatch.artifact.serialise import executable_from, graph_from, value_from
from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.compiler.options import CompileOptions
from onedispatch.dispatch.frontend.graph import ModelMetadata
from onedispatch.dispatch.plugins import discovery
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import (
    CompiledModelError,
    KernelError,
    OneDispatchError,
    UnsupportedModelError,
    statement_of,
)
from onedispatch.transactions.machine.device import read_text

if TYPE_CHECKING:
    from onedispatch.operators.scheduling.select import Selector


@public
def load(
    path: str | os.PathLike[str], plugins: Sequence[str | os.PathLike[str]] | None = None
) -> CompiledModel:
    """Reads a model that ``CompiledModel.save`` wrote.

    ``plugins`` are files with the custom kernels that the model was compiled with: see
    ``onedispatch.plugins``.

    Raises ``CompiledModelError`` for any other file; ``KernelNotFoundError`` with name, digest
    and where plug-ins were looked for, where the model runs a kernel that none of them brings.
    """
    discovery.use(plugins)
    return _read(Reader.from_path(arguments.file_path("the path to load from", path)), str(path))


def opened(model: object) -> CompiledModel | None:
    """Returns the compiled model that a path or bytes hold, None for any other ``model``.

    Raises as ``load`` does.
    """
    if not is_compiled(model):
        return None
    if isinstance(model, str | os.PathLike):
        return load(model)
    return _read(Reader.from_bytes(model, "the given bytes"), "in the given bytes")  # type: ignore[arg-type]


def unpickled(
    data: bytes,
    selector: Selector | None,
    catalog: tuple[str, ...] | None = None,
    pins: tuple[str, ...] = (),
) -> CompiledModel:
    """The model of ``CompiledModel.__reduce__``; plug-ins are those that are found without naming any."""
    discovery.ensure()
    model = _read(Reader.from_bytes(data, "the pickled bytes"), "in the pickled bytes")
    return replace(model, options=replace(model.options, selector=selector, catalog=catalog, pins=pins))


def _read(reader: Reader, name: str) -> CompiledModel:
    try:
        FORM(reader.description, "the description")
        model = _from(reader)
        model.check_kernels(f"the compiled model {name}")
        check_consistent(model)
        return model
    except (CompiledModelError, KernelError, UnsupportedModelError):
        raise
    except (ValueError, OneDispatchError) as error:  # ValueError: a misfit; NumPy's, where bytes fit no shape
        raise reader.damaged(f"a description that makes no sense: {statement_of(error)}") from error


def _from(reader: Reader) -> CompiledModel:
    plain = reader.description
    steps = [step for _, executable in plain["executables"] for step in executable["steps"]]
    whole = find_spec("onnx") is not None
    if not whole and (not steps or any("graph" in step for step in steps)):
        given = "nodes that run on the host" if steps else "a graph that is not compiled for any shape yet"
        remedy = "install the onnx package (pip install onnx)"
        raise CompiledModelError("the compiled model", given, "what runs without the onnx package", remedy)
    source = plain["source"] if whole else None
    weights = {name: reader.blob(index) for name, index in plain["weights"].items()}
    graph = None if source is None else graph_from(reader, source)
    kept = plain["source"]["constants"] if plain["source"] is not None else {}
    constant = bytes_of(weights | {name: reader.array(head) for name, head in kept.items()})
    return CompiledModel(
        CompileOptions(
            read_text(plain["device"], "the device of the compiled model")[0],
            plain["precision"],
            plain["fallback"],
            plain["cast_policy"],
            plain["sums"],
            plain["groups"],
        ),
        tuple(value_from(v) for v in plain["inputs"]),
        tuple(value_from(v) for v in plain["outputs"]),
        frozenset(plain["deciding"]),
        graph,
        plain["cache_size"],
        {key: executable_from(reader, executable, constant) for key, executable in plain["executables"]},
        metadata=ModelMetadata(**plain["metadata"]),
        weights=weights,
        frozen={name: reader.array(head) for name, head in plain["frozen"].items()},
        left_out="" if whole or plain["source"] is None else "the onnx package is not installed",
    )
