# SPDX-License-Identifier: Apache-2.0
"""Source frameworks: mapping rules as data, fusions, and the translation of a graph to ONNX by them."""
