# SPDX-License-Identifier: Apache-2.0
"""The text form of transactions: listing and assembler."""
