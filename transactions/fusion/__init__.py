# SPDX-License-Identifier: Apache-2.0
"""Many operators' transactions become one: arg maps, bindings, fusing."""
