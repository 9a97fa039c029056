# SPDX-License-Identifier: Apache-2.0
"""Fuses the transactions of many operators into one."""
