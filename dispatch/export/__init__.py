# SPDX-License-Identifier: Apache-2.0
"""What is known of a model's placement and time, as files that tools of others open."""
