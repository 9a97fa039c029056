# SPDX-License-Identifier: Apache-2.0
"""Source frameworks: light enough for what loads compiled models, without onnx."""

FRAMEWORKS = ("onnx", "tensorflow")
"""Those whose models are read."""
