# SPDX-License-Identifier: Apache-2.0
"""Tiny Gemma 3n: weights of its towers, pictures, and sounds. Its tower is timm's (timm must be installed)."""
import json

import torch


def fill_towers(model, config_file):
    """Convolutions keep the size of what they read, and scales that begin at nearly nothing count. The configuration is
    the file's again: timm writes activations into its blocks."""
    with open(config_file, encoding="utf-8") as file:
        said = json.load(file)["vision_config"]["model_args"]
    model.config.vision_config.model_args = said
    model.model.vision_tower.config.model_args = said
    with torch.no_grad():
        for name, p in model.named_parameters():
            if ".timm_model." in name and p.dim() == 4:
                p.copy_(torch.randn_like(p) * 0.9 / p[0].numel() ** 0.5)
            elif name.endswith("gamma") or ".bn" in name and name.endswith("weight"):
                p.copy_(1 + 0.2 * torch.randn_like(p))
        for p in model.parameters():
            p.copy_(p.to(torch.bfloat16).float())


def picture():
    """Of two cells a side, numbers from 0 to 1."""
    return {"pixel_values": torch.rand(1, 3, 64, 64)}


def sounds(config, model):
    """Two, as long as each other: what fills up the shorter one in a batch the original hears. And their rows, the last
    of which stand for nothing."""
    given = {"input_features": torch.randn(2, 37, config.audio_config.input_feat_size), "input_features_mask": torch.ones(2, 37, dtype=torch.bool)}
    with torch.no_grad():
        made = model.model.get_audio_features(given["input_features"], ~given["input_features_mask"], return_dict=True).pooler_output
        nothing = model.model.embed_audio(input_ids=torch.tensor([[config.text_config.vocab_size - 1]]))
        left = config.audio_soft_tokens_per_image - made.shape[1]
        rows = torch.cat([made, nothing.expand(2, left, -1)], 1)
    return given, rows
