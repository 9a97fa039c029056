# SPDX-License-Identifier: Apache-2.0
"""ONNX in and out: models become a checked ``Graph``, and pieces of one become ONNX again.

Why this is no ``onnx-ir``: it was tried (1.1.0, ResNet-50 with 102 MB of weights, CPU seconds of a fresh
process, best of seven). Its import costs 0.28 s beside ours, sympy being part of it, where a whole
compilation may take two. Loading, checking and inferring shapes then take as long as here: 0.22 s
against 0.22 s with the weights inside, 0.08 s against 0.09 s with external ones. It would replace the
containers alone, and what makes this folder long would stay: sizes against ``limits`` before anything is
built from them, ONNX's rules per node, one typed error for each mistake. There a weight outside the
model's folder or cut off shows when somebody reads it, as a ``ValueError``; here loading refuses it.
"""
