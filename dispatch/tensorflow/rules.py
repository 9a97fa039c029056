# SPDX-License-Identifier: Apache-2.0
"""Our mapping rules for TensorFlow, written in the public face: an example of it."""

from __future__ import annotations

from typing import Any

from onedispatch.dispatch.sources.api import frontend

tf = frontend("tensorflow")
tf.op("Relu")


@tf.expand("Identity")
def identity(g: Any, n: Any) -> Any:
    return n.inputs[0]
