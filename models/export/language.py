# SPDX-License-Identifier: Apache-2.0
"""Networks that read, write and listen."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

from models.export.network import Network, taken, tokens

_LLAMA = hf.LlamaConfig(
    vocab_size=2048,
    hidden_size=512,
    intermediate_size=1376,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=2,
)
_PAST = 24  # tokens that were read before


def bert_base(length: int = 128) -> Network:
    config = hf.BertConfig()
    mask = torch.ones(1, length, dtype=torch.int64)
    mask[:, length * 3 // 4 :] = 0
    inputs = {
        "input_ids": tokens(config.vocab_size, length),
        "attention_mask": mask,
        "token_type_ids": torch.zeros(1, length, dtype=torch.int64),
    }
    return taken(hf.BertModel(config), "last_hidden_state", inputs)


def llama() -> Network:
    inputs = {"input_ids": tokens(_LLAMA.vocab_size, 32)}
    return taken(hf.LlamaForCausalLM(_LLAMA), "logits", inputs, use_cache=False)


class _Step(nn.Module):
    """One more token: keys and values of the tokens before come in and go out, layer by layer."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, past_keys: Tensor, past_values: Tensor) -> tuple[Tensor, ...]:
        cache = hf.DynamicCache()
        for layer in range(past_keys.shape[0]):
            cache.update(past_keys[layer], past_values[layer], layer)
        position = torch.full((1, 1), past_keys.shape[3], dtype=torch.int64)
        result = self.model(input_ids=input_ids, past_key_values=cache, position_ids=position, use_cache=True)
        keys = torch.stack([layer.keys for layer in result.past_key_values.layers])
        values = torch.stack([layer.values for layer in result.past_key_values.layers])
        return result.logits, keys, values


def llama_step() -> Network:
    heads, width = _LLAMA.num_key_value_heads, _LLAMA.hidden_size // _LLAMA.num_attention_heads
    shape = (_LLAMA.num_hidden_layers, 1, heads, _PAST, width)
    inputs = {
        "input_ids": tokens(_LLAMA.vocab_size, 1),
        "past_keys": torch.randn(shape),
        "past_values": torch.randn(shape),
    }
    return Network(_Step(hf.LlamaForCausalLM(_LLAMA)), inputs, ("logits", "keys", "values"))


_WHISPER = hf.WhisperConfig()  # the tiny one


def whisper_encoder() -> Network:
    model = hf.WhisperModel(_WHISPER).get_encoder()
    spectrogram = torch.randn(1, _WHISPER.num_mel_bins, 2 * _WHISPER.max_source_positions)
    return taken(model, "last_hidden_state", {"input_features": spectrogram})


def whisper_decoder() -> Network:
    """Tokens so far beside the encoder's states; nothing is kept from step to step."""
    inputs = {
        "input_ids": tokens(_WHISPER.vocab_size, 8),
        "encoder_hidden_states": torch.randn(1, _WHISPER.max_source_positions, _WHISPER.d_model),
    }
    return taken(hf.WhisperModel(_WHISPER).get_decoder(), "last_hidden_state", inputs, use_cache=False)


NETWORKS = {
    "bert_base": bert_base,
    "llama": llama,
    "llama_step": llama_step,
    "whisper_encoder": whisper_encoder,
    "whisper_decoder": whisper_decoder,
}
