# SPDX-License-Identifier: Apache-2.0
"""From a ``Graph`` to a plan: fold, map, partition, place in memory, emit, fuse."""
