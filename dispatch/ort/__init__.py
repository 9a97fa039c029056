# SPDX-License-Identifier: Apache-2.0
"""Onnxruntime's names: options, values and enums, and what is said of those that have no meaning here."""
