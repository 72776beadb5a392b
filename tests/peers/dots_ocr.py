# SPDX-License-Identifier: Apache-2.0
"""dots.ocr for make_seeing_numbers.py: transformers' Qwen2, and a tower, which transformers does not have, by its files' config.json."""
import json
import os
from types import SimpleNamespace

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING


def turned(x, places):
    """x [n, heads, size]: the first and the second half of a head turn together, a half of the angles by the line, the rest by the column."""
    size = x.shape[-1]
    speeds = 1 / 10000 ** (torch.arange(0, size // 2, 2, dtype=torch.float32) / (size // 2))
    angles = torch.cat([places[:, :1] * speeds, places[:, 1:] * speeds], 1)[:, None]
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class Block(torch.nn.Module):
    def __init__(self, v):
        super().__init__()
        width, self.heads = v["embed_dim"], v["num_attention_heads"]
        self.norm1, self.norm2 = (torch.nn.RMSNorm(width, eps=v["rms_norm_eps"]) for _ in range(2))
        self.attn, self.mlp = torch.nn.Module(), torch.nn.Module()
        self.attn.qkv, self.attn.proj = torch.nn.Linear(width, 3 * width, bias=v["use_bias"]), torch.nn.Linear(width, width, bias=v["use_bias"])
        self.mlp.fc1, self.mlp.fc3 = (torch.nn.Linear(width, v["intermediate_size"], bias=v["use_bias"]) for _ in range(2))
        self.mlp.fc2 = torch.nn.Linear(v["intermediate_size"], width, bias=v["use_bias"])

    def forward(self, x, places):
        q, k, value = self.attn.qkv(self.norm1(x)).view(len(x), 3, self.heads, -1).unbind(1)
        q, k = (turned(t, places).transpose(0, 1) for t in (q, k))
        shares = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)
        x = x + self.attn.proj((shares @ value.transpose(0, 1)).transpose(0, 1).reshape(len(x), -1))
        y = self.norm2(x)
        return x + self.mlp.fc2(torch.nn.functional.silu(self.mlp.fc1(y)) * self.mlp.fc3(y))


class Tower(torch.nn.Module):
    def __init__(self, v):
        super().__init__()
        width, cell = v["embed_dim"], v["embed_dim"] * v["spatial_merge_size"] ** 2
        self.patch_embed = torch.nn.Module()
        self.patch_embed.patchifier = torch.nn.Module()
        self.patch_embed.patchifier.proj = torch.nn.Conv2d(v["num_channels"], width, v["patch_size"], v["patch_size"])
        self.patch_embed.patchifier.norm = torch.nn.RMSNorm(width, eps=v["rms_norm_eps"])
        self.blocks = torch.nn.ModuleList(Block(v) for _ in range(v["num_hidden_layers"]))
        self.post_trunk_norm = torch.nn.RMSNorm(width, eps=v["rms_norm_eps"])
        self.merger = torch.nn.Module()
        self.merger.ln_q = torch.nn.LayerNorm(width, eps=1e-6)
        self.merger.mlp = torch.nn.Sequential(torch.nn.Linear(cell, cell), torch.nn.GELU(), torch.nn.Linear(cell, v["hidden_size"]))
        self.vision, self.merge = v, v["spatial_merge_size"]

    def forward(self, patches, high, wide):
        m, side = self.merge, self.vision["patch_size"]
        line, column = torch.meshgrid(torch.arange(high), torch.arange(wide), indexing="ij")
        places = torch.stack([line, column], -1).reshape(high // m, m, wide // m, m, 2).transpose(1, 2).reshape(-1, 2).float()
        x = self.patch_embed.patchifier.proj(patches.view(len(patches), -1, side, side)).flatten(1)
        x = self.patch_embed.patchifier.norm(x)
        for block in self.blocks:
            x = block(x, places)
        x = self.merger.ln_q(self.post_trunk_norm(x))
        return self.merger.mlp(x.reshape(len(x) // m ** 2, -1))


class DotsOcr(torch.nn.Module):
    def __init__(self, wanted):
        super().__init__()
        text, vision = dict(wanted["text_config"]), dict(wanted["vision_config"])
        llm = AutoModelForCausalLM.from_config(CONFIG_MAPPING[text.pop("model_type")](**text), dtype=torch.float32, attn_implementation="eager")
        self.llm = [llm]  # its parts stand below this model's own names
        self.model, self.lm_head, self.vision_tower = llm.model, llm.lm_head, Tower(vision)
        self.model.get_image_features = self.get_image_features
        self.wanted = wanted
        self.config = SimpleNamespace(model_type="dots_ocr", image_token_id=wanted["image_token_id"], vision_config=SimpleNamespace(
            model_type="dots_ocr", spatial_merge_size=vision["spatial_merge_size"], patch_size=vision["patch_size"], temporal_patch_size=1, in_channels=vision["num_channels"]), text_config=llm.config)

    def get_output_embeddings(self):
        return self.lm_head

    def get_image_features(self, pixel_values, image_grid_thw, **_):
        made, first = [], 0
        for _, high, wide in image_grid_thw.tolist():
            made.append(self.vision_tower(pixel_values[first: first + high * wide], high, wide))
            first += high * wide
        return SimpleNamespace(pooler_output=made)

    def forward(self, input_ids, attention_mask=None, pixel_values=None, image_grid_thw=None, **_):
        x = self.model.embed_tokens(input_ids)
        if pixel_values is not None:
            x = x.masked_scatter((input_ids == self.config.image_token_id)[..., None], torch.cat(self.get_image_features(pixel_values, image_grid_thw).pooler_output))
        return self.llm[0](inputs_embeds=x, use_cache=False)

    def save_pretrained(self, folder, **_):
        os.makedirs(folder, exist_ok=True)
        tensors = {n: p.data.contiguous() for n, p in self.named_parameters()}
        save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        said = {**self.llm[0].config.to_dict(), **{k: v for k, v in self.wanted.items() if k != "text_config"}, "architectures": ["DotsOCRForCausalLM"],
                "model_type": "dots_ocr", "torch_dtype": "bfloat16"}
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump({k: v for k, v in said.items() if v is not None}, file, indent=2, sort_keys=True)
