# SPDX-License-Identifier: Apache-2.0
"""``onnx.backend.base.Backend`` for OneDispatch, so that ``onnx.backend.test`` can judge it.

    prepared = onedispatch.backend.prepare(model, "CPU", fallback="error")
    outputs = prepared.run([x])

Keyword arguments go to ``InferenceSession``: ``fallback="error"`` is the strict mode, in
which every node runs on the device. Device strings of ONNX ("CPU", "NPU") mean ``npu2``;
``npu_device=`` chooses another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from onedispatch.dispatch.base import arguments
from onedispatch.dispatch.frontend.exporter import type_proto
from onedispatch.dispatch.frontend.graph import type_name_of
from onedispatch.dispatch.runtime.session import InferenceSession
from onedispatch.transactions.base.boundary import public
from onedispatch.transactions.base.errors import InputError
from onedispatch.transactions.base.text import counted

_MOST_OPSET = (1 << 31) - 1


class OneDispatchRep(BackendRep):
    """A model that is ready to run; ``session`` has placement and reports."""

    def __init__(self, session: InferenceSession) -> None:
        super().__init__()
        self.session = session

    @public
    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs in order, by name too. ``inputs``: a dict, or values in the inputs' order."""
        infos = self.session.get_inputs()
        if isinstance(inputs, Mapping):
            feed = dict(inputs)
        else:
            values = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
            feed = {info.name: value for info, value in zip(infos, values, strict=False)}
        names = [info.name for info in self.session.get_outputs()]
        outputs = self.session.run(None, feed)
        return tuple(namedtupledict("Outputs", names)(*outputs))


class OneDispatchBackend(Backend):
    """Prepares models and runs single nodes."""

    @classmethod
    @public
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> OneDispatchRep:
        kwargs.setdefault("device", kwargs.pop("npu_device", "npu2"))
        return OneDispatchRep(InferenceSession(model, **kwargs))

    @classmethod
    @public
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    @public
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs one node; ``opset_version=`` (default: onnx's newest) chooses its meaning."""
        newest = onnx.defs.onnx_opset_version()
        version = arguments.integer("opset_version", kwargs.pop("opset_version", newest), 1, _MOST_OPSET)
        names = [name for name in node.input if name]
        if isinstance(inputs, Mapping):
            values = [inputs[name] for name in names if name in inputs]
        else:
            values = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        if len(values) != len(names):
            raise InputError("inputs", counted(len(values), "array"), f"one for each of {names}")
        arrays = [np.asarray(value) for value in values]
        typed = [
            onnx.helper.make_value_info(name, type_proto(type_name_of(array.dtype), array.shape))
            for name, array in zip(names, arrays, strict=True)
        ]
        # Types of the outputs are left open: importing infers them.
        made = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        opsets = [onnx.helper.make_opsetid(node.domain, version)]
        graph = onnx.helper.make_graph([node], "node", typed, made)
        model = onnx.helper.make_model(graph, opset_imports=opsets)
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    @public
    def supports_device(cls, device: str) -> bool:
        """ONNX's device strings: its tests ask for "CPU", which here means: no GPU needed."""
        kind = device.split(":")[0]
        if kind == "NPU":
            return True
        try:
            return bool(Device(device).type == DeviceType.CPU)
        except (AttributeError, ValueError):
            return False


prepare = OneDispatchBackend.prepare
run_model = OneDispatchBackend.run_model
run_node = OneDispatchBackend.run_node
supports_device = OneDispatchBackend.supports_device
