# SPDX-License-Identifier: Apache-2.0
"""What every layer uses: errors, message texts, the API boundary, file access."""
