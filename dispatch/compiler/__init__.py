# SPDX-License-Identifier: Apache-2.0
"""From a ``Graph`` to an ``Executable``: fold, map, partition, place in memory, emit, fuse."""
