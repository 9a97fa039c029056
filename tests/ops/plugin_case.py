# SPDX-License-Identifier: Apache-2.0
"""Cases of the kernels in ``tests/ops/plugins``: nodes of the domain ``corpus``, with values of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from onnx import ModelProto, helper

from onedispatch.operators.declarations.dtypes import DTYPES
from onedispatch.operators.plugin.plugin import plugin_of
from tests.ops.case import Array
from tests.plugins import model, value

DOMAIN = "corpus"


@dataclass(frozen=True)
class Case:
    """One node. ``dtypes``: of the inputs, or of all of them. Values are whole numbers below ``top``, so that
    sums are the same in every order, signed where the dtype is. ``close``: how far results may be off the
    reference, relatively; 0: not a bit, on any number of cores."""

    kernel: type
    shapes: Sequence[tuple[int, ...]]
    dtypes: str | Sequence[str] = "f32"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    top: int = 90
    close: float = 0.0

    @property
    def op(self) -> str:
        """The node's operator: the class's name."""
        return self.kernel.__name__

    def __str__(self) -> str:
        dtypes = self.dtypes if isinstance(self.dtypes, str) else "+".join(self.dtypes)
        return f"{self.op} {' '.join('x'.join(map(str, shape)) for shape in self.shapes)} {dtypes}"

    def arrays(self) -> list[Array]:
        rng = np.random.default_rng(11)
        dtypes = [self.dtypes] * len(self.shapes) if isinstance(self.dtypes, str) else self.dtypes
        found = []
        for dtype, shape in zip(dtypes, self.shapes, strict=True):
            low = 0 if dtype in ("u8", "i32", "u32") else -self.top
            found.append(rng.integers(low, self.top, shape).astype(DTYPES[dtype].numpy))
        return found

    def reference(self, arrays: Sequence[Array]) -> list[Array]:
        """What the kernel's own NumPy reference says."""
        kernel = plugin_of(self.kernel).kernel  # type: ignore[union-attr]
        scalars = {one.name: one.default for one in kernel.own_scalars}
        made = self.kernel().reference(SimpleNamespace(**(scalars | dict(self.attributes))), *arrays)
        return list(made) if isinstance(made, tuple) else [made]

    def model(self, arrays: Sequence[Array], outputs: int) -> ModelProto:
        """The node alone; nothing is said of its outputs but their names."""
        names = [f"x{i}" for i in range(len(arrays))]
        made = [f"z{i}" for i in range(outputs)]
        node = helper.make_node(self.op, names, made, name="node", domain=DOMAIN, **self.attributes)
        inputs = [value(name, a.shape, a.dtype) for name, a in zip(names, arrays, strict=True)]
        return model([node], inputs, [helper.make_empty_tensor_value_info(n) for n in made])
