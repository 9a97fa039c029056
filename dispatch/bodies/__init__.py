# SPDX-License-Identifier: Apache-2.0
"""Function bodies: by which ONNX defines operators, and ours of operators for which it has none."""
