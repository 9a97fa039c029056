# SPDX-License-Identifier: Apache-2.0
"""ONNX in and out: models become a checked ``Graph``, and pieces of one become ONNX again."""
