# SPDX-License-Identifier: Apache-2.0
"""What an operator is: arg map, constants, transaction, super-kernel parameters."""
