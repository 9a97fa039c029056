# SPDX-License-Identifier: Apache-2.0
"""Nodes that stay on the host, whatever else the device learns: the device has no float64."""

from __future__ import annotations

from onnx import NodeProto, TensorProto, helper


def on_host(read: str, write: str, name: str = "host") -> list[NodeProto]:
    """``write`` is ``read`` (float32), by two Casts: ``NAME_wide`` to float64 and ``NAME`` back."""
    wide = f"{write}_wide"
    return [
        helper.make_node("Cast", [read], [wide], name=f"{name}_wide", to=TensorProto.DOUBLE),
        helper.make_node("Cast", [wide], [write], name=name, to=TensorProto.FLOAT),
    ]
