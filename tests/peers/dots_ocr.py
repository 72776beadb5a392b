# SPDX-License-Identifier: Apache-2.0
"""dots.ocr for make_seeing_numbers.py: transformers' Qwen2, and a tower, which transformers does not have, by its files' config.json.
And WithTower: a text model of transformers that sees through any tower of ours."""
import json
import os
from types import SimpleNamespace

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING


def places_of(high, wide, m):
    """[high * wide, 2]: line and column of each patch, cells of m x m one behind the other."""
    line, column = torch.meshgrid(torch.arange(high), torch.arange(wide), indexing="ij")
    return torch.stack([line, column], -1).reshape(high // m, m, wide // m, m, 2).transpose(1, 2).reshape(-1, 2).float()


def angles_of(places, size):
    """[n, size / 2] of heads of `size` numbers: a half of the angles by the line, the rest by the column."""
    speeds = 1 / 10000 ** (torch.arange(0, size // 2, 2, dtype=torch.float32) / (size // 2))
    return torch.cat([places[:, :1] * speeds, places[:, 1:] * speeds], 1)


def turned(x, angles):
    """x [n, heads, size]: the first and the second half of a head turn together."""
    angles = angles[:, None]
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

    def forward(self, x, angles):
        q, k, value = self.attn.qkv(self.norm1(x)).view(len(x), 3, self.heads, -1).unbind(1)
        q, k = (turned(t, angles).transpose(0, 1) for t in (q, k))
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
        angles = angles_of(places_of(high, wide, m), self.vision["embed_dim"] // self.vision["num_attention_heads"])
        x = self.patch_embed.patchifier.proj(patches.view(len(patches), -1, side, side)).flatten(1)
        x = self.patch_embed.patchifier.norm(x)
        for block in self.blocks:
            x = block(x, angles)
        x = self.merger.ln_q(self.post_trunk_norm(x))
        return self.merger.mlp(x.reshape(len(x) // m ** 2, -1))


class WithTower(torch.nn.Module):
    """`tower`(patches, high, wide) gives a picture's rows; it stands in files below `name`."""
    nested = False  # the text part's settings stand below text_config

    def __init__(self, wanted, name, tower):
        super().__init__()
        text, vision = dict(wanted["text_config"]), wanted["vision_config"]
        llm = AutoModelForCausalLM.from_config(CONFIG_MAPPING[text.pop("model_type")](**text), dtype=torch.float32, attn_implementation="eager")
        self.llm = [llm]  # its parts stand below this model's own names
        self.model, self.lm_head = llm.model, llm.lm_head
        self.add_module(name, tower)
        self.tower, self.wanted = [tower], wanted
        self.model.get_image_features = self.get_image_features
        self.config = SimpleNamespace(model_type=wanted["model_type"], image_token_id=wanted["image_token_id"], text_config=llm.config, vision_config=SimpleNamespace(
            model_type=wanted["model_type"], spatial_merge_size=vision["spatial_merge_size"], patch_size=vision["patch_size"], temporal_patch_size=1, in_channels=3))

    def get_output_embeddings(self):
        return self.lm_head

    def get_image_features(self, pixel_values, image_grid_thw, **_):
        made, first = [], 0
        for _, high, wide in image_grid_thw.tolist():
            made.append(self.tower[0](pixel_values[first: first + high * wide], high, wide))
            first += high * wide
        return SimpleNamespace(pooler_output=made)

    def forward(self, input_ids, attention_mask=None, pixel_values=None, **sizes):
        x = self.model.embed_tokens(input_ids)
        if pixel_values is not None:
            x = x.masked_scatter((input_ids == self.config.image_token_id)[..., None], torch.cat(self.get_image_features(pixel_values, **sizes).pooler_output))
        return self.llm[0](inputs_embeds=x, use_cache=False)

    def save_pretrained(self, folder, **_):
        os.makedirs(folder, exist_ok=True)
        tensors = {n: p.data.contiguous() for n, p in self.named_parameters()}
        save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        text = {k: v for k, v in self.llm[0].config.to_dict().items() if v is not None and k != "dtype"}
        said = {**({"text_config": text} if self.nested else text), **{k: v for k, v in self.wanted.items() if k != "text_config"}, "torch_dtype": "bfloat16"}
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(said, file, indent=2, sort_keys=True)


class DotsOcr(WithTower):
    def __init__(self, wanted):
        super().__init__(wanted, "vision_tower", Tower(wanted["vision_config"]))
