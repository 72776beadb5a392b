# SPDX-License-Identifier: Apache-2.0
"""SAIL-VL2 for make_seeing_numbers.py: transformers' Qwen3, AIMv2's tower by its published description, which transformers has under other
names, and the two layers that its files' own code puts between them."""
import json
import os
from types import SimpleNamespace

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING


class Block(torch.nn.Module):
    def __init__(self, v):
        super().__init__()
        width, ffn, self.heads = v["hidden_size"], v["intermediate_size"], v["num_attention_heads"]
        self.norm_1, self.norm_2 = (torch.nn.RMSNorm(width, eps=v["rms_norm_eps"]) for _ in range(2))
        self.attn, self.mlp = torch.nn.Module(), torch.nn.Module()
        self.attn.qkv, self.attn.proj = torch.nn.Linear(width, 3 * width, bias=False), torch.nn.Linear(width, width, bias=False)
        self.mlp.fc1, self.mlp.fc3 = torch.nn.Linear(width, ffn, bias=False), torch.nn.Linear(width, ffn, bias=False)
        self.mlp.fc2 = torch.nn.Linear(ffn, width, bias=False)

    def forward(self, x):
        q, k, value = self.attn.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, value)
        x = x + self.attn.proj(seen.transpose(1, 2).flatten(2))
        read = self.norm_2(x)
        return x + self.mlp.fc2(torch.nn.functional.silu(self.mlp.fc1(read)) * self.mlp.fc3(read))


class Tower(torch.nn.Module):
    def __init__(self, v):
        super().__init__()
        width, side = v["hidden_size"], v["patch_size"]
        self.preprocessor, self.trunk = torch.nn.Module(), torch.nn.Module()
        self.preprocessor.patchifier = torch.nn.Module()
        self.preprocessor.patchifier.proj = torch.nn.Conv2d(3, width, side, side)
        self.preprocessor.patchifier.norm = torch.nn.RMSNorm(width, eps=v["rms_norm_eps"])
        self.preprocessor.pos_embed = torch.nn.Parameter(torch.zeros(1, (v["image_size"] // side) ** 2, width))
        self.trunk.blocks = torch.nn.ModuleList(Block(v) for _ in range(v["num_hidden_layers"]))
        self.trunk.post_trunk_norm = torch.nn.RMSNorm(width, eps=v["rms_norm_eps"])

    def forward(self, pixels):
        patches = self.preprocessor.patchifier.proj(pixels).flatten(2).transpose(1, 2)
        x = self.preprocessor.patchifier.norm(patches) + self.preprocessor.pos_embed
        for block in self.trunk.blocks:
            x = block(x)
        return self.trunk.post_trunk_norm(x)


class SailVl(torch.nn.Module):
    def __init__(self, wanted):
        super().__init__()
        text, vision = dict(wanted["llm_config"]), wanted["vision_config"]
        config = CONFIG_MAPPING[text["model_type"]](**{k: v for k, v in text.items() if k not in ("model_type", "architectures")})
        self.vision_model, cell = Tower(vision), 4 * vision["hidden_size"]
        self.language_model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
        hidden, self.wanted = config.hidden_size, wanted
        self.mlp1 = torch.nn.Sequential(torch.nn.LayerNorm(cell), torch.nn.Linear(cell, hidden), torch.nn.GELU(), torch.nn.Linear(hidden, hidden))
        self.config = SimpleNamespace(model_type="sailvl", image_token_id=wanted["image_token_id"], text_config=config,
                                      vision_config=SimpleNamespace(model_type="sailvit", image_size=vision["image_size"]))

    @property
    def model(self):
        return SimpleNamespace(get_image_features=self.get_image_features)

    def get_output_embeddings(self):
        return self.language_model.lm_head

    def get_image_features(self, pixel_values, **_):
        made = self.vision_model(pixel_values)
        side = int(made.shape[1] ** 0.5) // 2
        cells = made.unflatten(1, (side, 2, side, 2)).permute(0, 1, 3, 2, 4, 5).flatten(3).flatten(1, 2)
        return SimpleNamespace(pooler_output=self.mlp1(cells))

    def forward(self, input_ids, attention_mask=None, pixel_values=None, use_cache=False):
        x = self.language_model.model.embed_tokens(input_ids)
        if pixel_values is not None:
            rows = self.get_image_features(pixel_values).pooler_output
            x = x.masked_scatter((input_ids == self.config.image_token_id)[..., None], rows.flatten(0, 1))
        return self.language_model(inputs_embeds=x, use_cache=False)

    def save_pretrained(self, folder, **_):
        os.makedirs(folder, exist_ok=True)
        save_file({n: p.data.contiguous() for n, p in self.named_parameters()}, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump({**self.wanted, "torch_dtype": "bfloat16"}, file, indent=2, sort_keys=True)
