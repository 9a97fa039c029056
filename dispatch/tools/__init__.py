# SPDX-License-Identifier: Apache-2.0
"""Tools around the road that a model takes: a zoo, replays and surveys of foreign transactions, checks."""
