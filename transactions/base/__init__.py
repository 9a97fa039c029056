# SPDX-License-Identifier: Apache-2.0
"""What every layer stands on: errors, words for messages, checked borders, writing files."""
