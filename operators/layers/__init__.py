# SPDX-License-Identifier: Apache-2.0
"""Layers: kernels with a face (``od.Layer``). Their parameters, tiles, moves in device memory, and slices."""
