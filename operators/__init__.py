# SPDX-License-Identifier: Apache-2.0
"""Device operators.

TensorSpec, NodeSpec   a tensor, an ONNX node, with concrete shapes
maps                   registers a function as the mapping of an ONNX operator
Nest                   an index space, and how its tiles touch tensors
Schedule               tiles, and which core does which
Operator               arg map, formatted constants, transaction, super-kernel parameters
"""
