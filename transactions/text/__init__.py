# SPDX-License-Identifier: Apache-2.0
"""Transactions as text, and text as transactions."""
