# SPDX-License-Identifier: Apache-2.0
"""What an operator is, and which ONNX operators have one."""
