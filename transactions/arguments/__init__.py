# SPDX-License-Identifier: Apache-2.0
"""The arguments of a transaction: regions that are tensors, and where they go in fused buffers."""
