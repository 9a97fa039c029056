# SPDX-License-Identifier: Apache-2.0
"""Custom kernels (from plug-ins): their declarations, their registration, how nodes become operators."""
