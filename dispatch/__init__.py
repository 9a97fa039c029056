# SPDX-License-Identifier: Apache-2.0
"""The dispatcher: takes an ONNX model to one kernel run. ARCHITECTURE.md says what each folder does."""
