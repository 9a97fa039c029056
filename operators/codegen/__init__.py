# SPDX-License-Identifier: Apache-2.0
"""C++ headers that are generated from the declarations of kernels."""
