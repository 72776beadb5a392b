# SPDX-License-Identifier: Apache-2.0
"""Phi-3-vision for make_seeing_numbers.py: transformers' Phi-3 and CLIP, and what its files' own code puts between them."""
from types import SimpleNamespace

import torch
from transformers import CLIPVisionConfig, CLIPVisionModel

from dots_ocr import WithTower


class Eyes(torch.nn.Module):
    def __init__(self, vision, hidden):
        super().__init__()
        cell = 4 * vision["hidden_size"]
        self.img_processor = torch.nn.Module()
        self.img_processor.vision_model = CLIPVisionModel(CLIPVisionConfig(**{k: v for k, v in vision.items() if k != "model_type"}, attn_implementation="eager"))
        self.sub_GN, self.glb_GN = torch.nn.Parameter(torch.zeros(1, 1, 1, cell)), torch.nn.Parameter(torch.zeros(1, 1, cell))
        self.img_projection = torch.nn.Sequential(torch.nn.Linear(cell, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, hidden))

    def lines(self, features, high, wide):
        """Features [high * wide, patches, D] of squares as lines of cells of 2 x 2, each with its end."""
        side = int(features.shape[1] ** 0.5) // 2
        x = features.view(high, wide, side, 2, side, 2, -1).permute(0, 2, 1, 4, 3, 5, 6).reshape(high * side, wide * side, -1)
        return torch.cat([x, self.sub_GN[0].expand(len(x), 1, -1)], 1).flatten(0, 1)

    def forward(self, squares, size):
        """squares [1 + n, 3, side, side]: of all of it, and of the larger picture of `size`."""
        features = self.img_processor.vision_model(squares, output_hidden_states=True).hidden_states[-2][:, 1:]
        high, wide = (n // squares.shape[-1] for n in size)
        return self.img_projection(torch.cat([self.lines(features[1:], high, wide), self.glb_GN[0], self.lines(features[:1], 1, 1)]))


class Phi3V(WithTower):
    def __init__(self, wanted):
        eyes = Eyes(wanted["vision_config"], wanted["text_config"]["hidden_size"])
        super().__init__({**wanted, "vision_config": {**wanted["vision_config"], "spatial_merge_size": 2}}, "vision_embed_tokens", eyes)
        del self.vision_embed_tokens
        self.model.vision_embed_tokens, self.wanted = eyes, wanted
        self.config.vision_config.image_size = wanted["vision_config"]["image_size"]

    def get_image_features(self, pixel_values, image_sizes, **_):
        made = []
        for squares, size in zip(pixel_values, image_sizes.tolist()):
            side = squares.shape[-1]
            made.append(self.tower[0](squares[: 1 + size[0] // side * (size[1] // side)], size))
        return SimpleNamespace(pooler_output=made)
