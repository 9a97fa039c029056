# SPDX-License-Identifier: Apache-2.0
"""What is said of kernels, element types, tensors, and of what maps: data, no decisions."""
