# SPDX-License-Identifier: Apache-2.0
"""A body that ends the process is not taken for success."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.ops.libraries import built

PROGRAM = """
import sys
import numpy as np
from onnx import TensorProto, helper
import onedispatch as od

values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xz"]
node = helper.make_node("Quietly", ["x"], ["z"], domain="leave")
graph = helper.make_graph([node], "g", values[:1], values[1:])
imports = [helper.make_opsetid("", 21), helper.make_opsetid("leave", 1)]
model = helper.make_model(graph, opset_imports=imports, ir_version=10)
od.InferenceSession(model, plugins=[sys.argv[1]]).run(None, {"x": np.ones(4, np.float32)})
"""


def test_a_body_that_calls_exit_is_told_of_and_no_success(tmp_path: Path) -> None:
    library = built("leave.cpp", tmp_path)
    command = [sys.executable, "-c", PROGRAM, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1, done.stderr
    assert "called exit(0), which ends the process" in done.stderr
