# SPDX-License-Identifier: Apache-2.0
"""LLaVA-OneVision 1.5 for make_seeing_numbers.py: transformers' Qwen3, and RICE-ViT, which transformers does not have, by its published
description: a row of its own before each picture's patches, whose heads turn by learnt angles."""
import torch

from dots_ocr import WithTower, angles_of, places_of, turned


class Block(torch.nn.Module):
    def __init__(self, v):
        super().__init__()
        width, self.heads = v["hidden_size"], v["num_heads"]
        self.norm1, self.norm2 = (torch.nn.LayerNorm(width, eps=v["layer_norm_eps"]) for _ in range(2))
        self.attn, self.mlp = torch.nn.Module(), torch.nn.Module()
        self.attn.qkv, self.attn.proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp.fc1, self.mlp.fc2 = torch.nn.Linear(width, v["intermediate_size"]), torch.nn.Linear(v["intermediate_size"], width)

    def forward(self, x, angles):
        q, k, value = self.attn.qkv(self.norm1(x)).view(len(x), 3, self.heads, -1).unbind(1)
        q, k = (turned(t, angles).transpose(0, 1) for t in (q, k))
        shares = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)
        x = x + self.attn.proj((shares @ value.transpose(0, 1)).transpose(0, 1).reshape(len(x), -1))
        return x + self.mlp.fc2(torch.nn.functional.gelu(self.mlp.fc1(self.norm2(x))))


class Rice(torch.nn.Module):
    def __init__(self, v):
        super().__init__()
        width, self.merge, self.side, self.size = v["hidden_size"], v["spatial_merge_size"], v["patch_size"], v["hidden_size"] // v["num_heads"]
        self.patch_embed, self.merger = torch.nn.Module(), torch.nn.Module()
        self.patch_embed.proj = torch.nn.Conv2d(3, width, self.side, self.side, bias=False)
        self.class_embedding = torch.nn.Parameter(torch.zeros(width))
        self.class_pos_emb = torch.nn.Parameter(torch.zeros(1, self.size // 2), requires_grad=False)
        self.pre_layernorm = torch.nn.LayerNorm(width, eps=v["layer_norm_eps"])
        self.blocks = torch.nn.ModuleList(Block(v) for _ in range(v["depth"]))
        cell = width * self.merge ** 2
        self.merger.ln_q = torch.nn.LayerNorm(width, eps=v["layer_norm_eps"])
        self.merger.mlp = torch.nn.Sequential(torch.nn.Linear(cell, cell), torch.nn.GELU(), torch.nn.Linear(cell, v["text_hidden_size"]))

    def forward(self, patches, high, wide):
        x = self.patch_embed.proj(patches.view(len(patches), 3, self.side, self.side)).flatten(1)
        angles = torch.cat([self.class_pos_emb, angles_of(places_of(high, wide, self.merge), self.size)])
        x = self.pre_layernorm(torch.cat([self.class_embedding[None], x]))
        for block in self.blocks:
            x = block(x, angles)
        return self.merger.mlp(self.merger.ln_q(x[1:]).reshape(len(patches) // self.merge ** 2, -1))


class LlavaOneVision15(WithTower):
    nested = True

    def __init__(self, wanted):
        super().__init__(wanted, "visual", Rice(wanted["vision_config"]))
