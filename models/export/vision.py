# SPDX-License-Identifier: Apache-2.0
"""Networks that look at images: classifiers and segmentation, sizes as published."""

from __future__ import annotations

import transformers as hf
from torch import nn

from models.export.network import Network, image, taken

_CLASSES = 1000


def _network(model: nn.Module, size: int = 224) -> Network:
    """Classifiers of ImageNet's thousand classes, segmentation into ADE20K's 150."""
    return taken(model, "logits", {"pixel_values": image(size)})


def resnet50() -> Network:
    return _network(hf.ResNetForImageClassification(hf.ResNetConfig(num_labels=_CLASSES)))


def mobilenet_v2() -> Network:
    return _network(hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config(num_labels=_CLASSES)))


def efficientnet_b0() -> Network:
    config = hf.EfficientNetConfig(
        width_coefficient=1.0, depth_coefficient=1.0, image_size=224, hidden_dim=1280, num_labels=_CLASSES
    )
    return _network(hf.EfficientNetForImageClassification(config))


def convnext_tiny() -> Network:
    return _network(hf.ConvNextForImageClassification(hf.ConvNextConfig(num_labels=_CLASSES)))


def vit_small() -> Network:
    config = hf.ViTConfig(num_labels=_CLASSES, hidden_size=384, num_attention_heads=6, intermediate_size=1536)
    return _network(hf.ViTForImageClassification(config))


def swin_tiny() -> Network:
    return _network(hf.SwinForImageClassification(hf.SwinConfig(num_labels=_CLASSES)))


def segformer_b0() -> Network:
    return _network(hf.SegformerForSemanticSegmentation(hf.SegformerConfig(num_labels=150)), 512)


NETWORKS = {
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "efficientnet_b0": efficientnet_b0,
    "convnext_tiny": convnext_tiny,
    "vit_small": vit_small,
    "swin_tiny": swin_tiny,
    "segformer_b0": segformer_b0,
}
