# SPDX-License-Identifier: Apache-2.0
"""Mappings from ONNX operators to device operators, by ``@maps``; ``registry`` imports all."""
