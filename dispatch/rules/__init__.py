# SPDX-License-Identifier: Apache-2.0
"""Rewrite rules as data: patterns of several nodes that are one standard ONNX node, and their matching."""
