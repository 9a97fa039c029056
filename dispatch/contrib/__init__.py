# SPDX-License-Identifier: Apache-2.0
"""Operators of onnxruntime that ONNX has as one or several of its own: our rules for com.microsoft."""
