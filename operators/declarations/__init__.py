# SPDX-License-Identifier: Apache-2.0
"""What is said of kernels, element types and tensors: data, no decisions."""
