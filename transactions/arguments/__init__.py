# SPDX-License-Identifier: Apache-2.0
"""The arguments of a transaction: tensor regions, and their positions in the fused buffers."""
