# SPDX-License-Identifier: Apache-2.0
"""Reading the file of a compiled model: every part has its form, and the parts fit each other."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence

from onedispatch.dispatch.artifact.consistency import check_consistent
from onedispatch.dispatch.artifact.container import Reader
from onedispatch.dispatch.artifact.model import FORM, CompiledModel
from onedispatch.dispatch.artifact.serialise import executable_from, graph_from, value_from
from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.plugins import discovery
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import (
    CompiledModelError,
    KernelError,
    OneDispatchError,
    UnsupportedModelError,
)
from onedispatch.transactions.machine.device import read_text


@public
def load(
    path: str | os.PathLike[str], plugins: Sequence[str | os.PathLike[str]] | None = None
) -> CompiledModel:
    """Reads a model that ``CompiledModel.save`` wrote.

    ``plugins`` are files that bring kernels from outside, where the model was compiled with such: see
    ``onedispatch.plugins``.

    Raises ``CompiledModelError`` for whatever else the file may be; ``KernelNotFoundError`` with name, digest
    and where plug-ins were looked for, where the model runs a kernel that none of them brings.
    """
    discovery.use(plugins)
    reader = Reader.from_path(arguments.file_path("the path to load from", path))
    try:
        FORM(reader.description, "the description")
        model = _from(reader)
        model.check_kernels(f"the compiled model {path}")
        check_consistent(model)
        return model
    except (CompiledModelError, KernelError, UnsupportedModelError):
        raise
    except (ValueError, OneDispatchError) as error:  # ValueError: a misfit; NumPy's, where bytes fit no shape
        raise reader.damaged(f"a description that makes no sense: {error}") from error


def _from(reader: Reader) -> CompiledModel:
    plain = reader.description
    source = plain["source"]
    return CompiledModel(
        read_text(plain["device"], "the device of the compiled model")[0],
        plain["precision"],
        plain["fallback"],
        tuple(value_from(v) for v in plain["inputs"]),
        tuple(value_from(v) for v in plain["outputs"]),
        frozenset(plain["deciding"]),
        None if source is None else graph_from(reader, source),
        plain["cache_size"],
        OrderedDict((key, executable_from(reader, executable)) for key, executable in plain["executables"]),
        cast_policy=plain["cast_policy"],
        sums=plain["sums"],
    )
