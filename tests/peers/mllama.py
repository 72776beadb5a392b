# SPDX-License-Identifier: Apache-2.0
"""Llama 3.2 Vision's pictures: tiles that are filled up to as many as there can be, and which tokens see which of them."""
import torch
from transformers.models.mllama.processing_mllama import convert_sparse_cross_attention_mask_to_dense, get_cross_attention_token_mask

# Of each row the words before, between and behind its pictures: the second and third of the first row stand side by side.
ROWS = ((3, 2, 0, 5), (4, 6))
# Tiles of the pictures over height and width.
TILES = ((1, 2), (1, 1), (2, 1), (2, 2))


def open_gates(model):
    """Fresh ones are shut, or nearly: nobody would see what stands behind them."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.numel() == 1 and "gate" in name:
                p.copy_((0.4 + 0.5 * torch.rand(1)).to(torch.bfloat16).float())


def picture(config, number):
    vision = config.vision_config
    high, wide = TILES[number]
    pixels = torch.zeros(1, vision.max_num_tiles, 3, vision.image_size, vision.image_size)
    pixels[0, :high * wide] = torch.randn(high * wide, *pixels.shape[2:])
    return {"pixel_values": pixels, "aspect_ratio_ids": torch.tensor([vision.supported_aspect_ratios.index([high, wide]) + 1]),
            "aspect_ratio_mask": (torch.arange(vision.max_num_tiles) < high * wide).long()[None]}


def features_of(model, given):
    seen = model.model.vision_model(**{name: t[None] for name, t in given.items()}).last_hidden_state
    return model.model.multi_modal_projector(seen).flatten(0, -2)


def arguments(config, row, given):
    """With the pictures of a row: which of them each token sees."""
    if not given:
        return {}
    tiles = given["aspect_ratio_mask"].sum(1).tolist()
    seen = [get_cross_attention_token_mask(row, config.image_token_id)]
    mask = convert_sparse_cross_attention_mask_to_dense(seen, [tiles], config.vision_config.max_num_tiles, len(row))
    return {"cross_attention_mask": torch.tensor(mask), **{name: t[None] for name, t in given.items()}}
