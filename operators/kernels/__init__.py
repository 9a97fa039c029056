# SPDX-License-Identifier: Apache-2.0
"""Device operators: kernel declarations with their loop nests and references; ``registry`` imports all."""
