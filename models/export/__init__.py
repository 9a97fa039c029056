# SPDX-License-Identifier: Apache-2.0
"""Whole networks as ONNX files, with seeded weights: ``python -m models.export NAME ... --to FOLDER``.

Needs the extra ``export`` (torch and transformers). Nothing is downloaded: architectures come from their
published configurations, weights from a seed, so that the same versions write the same network.
"""
