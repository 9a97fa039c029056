# SPDX-License-Identifier: Apache-2.0
"""Custom kernels (from plug-ins): their declarations, the catalog of them, how nodes become operators."""
