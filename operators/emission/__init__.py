# SPDX-License-Identifier: Apache-2.0
"""From a schedule to a transaction in the universal overlay: buffer descriptors, locks, tasks."""
