# SPDX-License-Identifier: Apache-2.0
"""Imports ONNX models as a checked ``Graph``, and exports parts of a graph as ONNX.

``onnx-ir`` was tried in place of ``Graph`` (1.1.0, ResNet-50 with 102 MB of weights, CPU seconds of a fresh
process, best of seven). Importing it costs 0.28 s more, since it imports sympy; a whole compilation may take
2 s. Loading, checking and shape inference take as long as here: 0.22 s against 0.22 s with embedded weights,
0.08 s against 0.09 s with external ones. It would replace the containers only; the bulk of this folder would
stay: sizes against ``limits`` before anything is built from them, validity checks per node, a typed error for
each mistake. There a weight outside the model's folder, or a truncated one, is a ``ValueError`` when it is
first read; here loading refuses it.
"""
