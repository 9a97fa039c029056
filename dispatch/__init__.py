# SPDX-License-Identifier: Apache-2.0
"""The dispatcher: takes an ONNX model to one kernel run. README.md says what each room does."""
