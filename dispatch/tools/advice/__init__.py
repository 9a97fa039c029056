# SPDX-License-Identifier: Apache-2.0
"""Edits of a model that move nodes to the NPU or make it faster: found, tried, and what each gains."""
