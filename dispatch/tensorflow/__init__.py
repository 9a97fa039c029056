# SPDX-License-Identifier: Apache-2.0
"""TensorFlow GraphDefs: their reader, the signatures of operators, and our rules."""
