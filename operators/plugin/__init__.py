# SPDX-License-Identifier: Apache-2.0
"""Kernels from outside: how they are declared, which there are, how their nodes become operators."""
