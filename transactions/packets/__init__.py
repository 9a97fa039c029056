# SPDX-License-Identifier: Apache-2.0
"""What travels as packets: register writes to control ports, and tokens to the controller."""
