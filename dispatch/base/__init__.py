# SPDX-License-Identifier: Apache-2.0
"""Utilities for every room of the dispatcher: limits, arguments, processes, interrupts."""
