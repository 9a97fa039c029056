# SPDX-License-Identifier: Apache-2.0
"""Which ONNX operators map to device operators: filled by ``@maps`` in the operator files."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from onedispatch.operators.declarations.kernel import Kernel, declared
from onedispatch.operators.declarations.tensor import NodeSpec

MICROSOFT = "com.microsoft"  # the domain of onnxruntime's own operators
Inferred = list[tuple[np.dtype[Any], tuple[int, ...]]]
"""type and shape of every output"""
MapFunction = Callable[[NodeSpec, Any], None]
"""(node, ``Lowering``): emits operators into the latter, which lies above all declarations"""


@dataclass(frozen=True)
class OpMapping:
    """One row of ``onedispatch ops``."""

    domain: str
    op_type: str
    dtypes: tuple[str, ...]  # of the data inputs
    notes: str  # bounds in one line
    function: MapFunction
    origin: str = ""  # the plug-in that brought it; "": ours
    custom: Any = None  # of a custom kernel: its ``NodeMapping`` (operators/plugin)
    like: int = -1  # of a domain whose shapes ONNX does not infer: the input that the outputs are as
    infer: Callable[[NodeSpec], Inferred] | None = None  # what they are where they are as none of them


_MAPPINGS: dict[tuple[str, str], OpMapping] = {}


def maps(
    *op_types: str,
    dtypes: tuple[str, ...] | dict[str, tuple[str, ...]] = ("float32",),
    notes: str = "",
    domain: str = "",
    like: int = -1,
    infer: Callable[[NodeSpec], Inferred] | None = None,
) -> Callable[[MapFunction], MapFunction]:
    """Register the decorated function as the mapping of ONNX ``op_types``.

    ``dtypes`` are NumPy's names of what the data inputs may be, from the kernel's declaration; where
    they differ, per operator. Of a ``domain`` that is not ONNX's, results have shape and type of input
    ``like``, or what ``infer`` says of a node whose inputs have shapes, or what the model says. The
    function gets a ``NodeSpec`` and a ``Lowering``; it emits device operators or raises ``Unsupported``.
    Registering an operator twice is a ``ValueError`` that names both.
    """

    def register(function: MapFunction) -> MapFunction:
        for op_type in op_types:
            key = (domain, op_type)
            if key in _MAPPINGS:
                other = _MAPPINGS[key].function
                raise ValueError(
                    f"{op_type} is mapped twice: by {other.__module__}.{other.__name__} "
                    f"and by {function.__module__}.{function.__name__}; remove one"
                )
            own = dtypes[op_type] if isinstance(dtypes, dict) else dtypes
            _MAPPINGS[key] = OpMapping(domain, op_type, own, notes, function, like=like, infer=infer)
        return function

    return register


def override(mapping: OpMapping) -> OpMapping | None:
    """Puts a plug-in's mapping into the table, and returns what it takes the place of.

    ``operators/plugin/registrations.py`` decides which plug-in may do so.
    """
    _load_all()
    replaced = _MAPPINGS.get((mapping.domain, mapping.op_type))
    _MAPPINGS[mapping.domain, mapping.op_type] = mapping
    return replaced


def restore(domain: str, op_type: str, ours: OpMapping | None) -> None:
    """Undoes ``override``: the operator is mapped as it was before."""
    if ours is None:
        del _MAPPINGS[domain, op_type]
    else:
        _MAPPINGS[domain, op_type] = ours


@cache
def _load_all() -> None:
    for room in ("kernels", "mappings"):
        package = importlib.import_module(f"onedispatch.operators.{room}")
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")


def all_kernels() -> list[Kernel]:
    """Every declared kernel, by name."""
    _load_all()
    return declared()


def mapping_for(domain: str, op_type: str) -> OpMapping | None:
    _load_all()
    return _MAPPINGS.get(("" if domain == "ai.onnx" else domain, op_type))


def custom_mapping(node: Any) -> Any:
    """What ``od.maps`` says of a node that a custom kernel computes; None for others."""
    mapping = mapping_for(node.domain, node.op_type)
    return None if mapping is None else mapping.custom


def all_mappings() -> list[OpMapping]:
    """Every mapping, sorted by domain and name."""
    _load_all()
    return [_MAPPINGS[key] for key in sorted(_MAPPINGS)]
