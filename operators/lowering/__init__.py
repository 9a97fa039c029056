# SPDX-License-Identifier: Apache-2.0
"""Helpers that several mappings share: they read ONNX operands and emit sequences of device operators."""
