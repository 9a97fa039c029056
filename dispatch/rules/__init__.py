# SPDX-License-Identifier: Apache-2.0
"""Rules, Graph to Graph: several nodes that are one standard ONNX node, as data, and how they are found."""
