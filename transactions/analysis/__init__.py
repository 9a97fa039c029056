# SPDX-License-Identifier: Apache-2.0
"""What a transaction does: effects, order, checks, explanations, pictures, differences."""
