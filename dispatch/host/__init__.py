# SPDX-License-Identifier: Apache-2.0
"""What runs on the host: regions of nodes that no device operator takes, and the engines under them."""
