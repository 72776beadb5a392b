# SPDX-License-Identifier: Apache-2.0
"""MiniCPM-V 2.5 to 4.5 for make_seeing_numbers.py: transformers' text models and SigLIP's layers, and by its report's formulas what
lies between them (positions of pictures in their own size, and queries that read them), which transformers does not have."""
import json
import os
from types import SimpleNamespace

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, SiglipVisionConfig, SiglipVisionModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING


def sines(width, high, wide):
    """[high * wide, width]: sines and cosines of the column, then those of the line."""
    speeds = 1 / 10000 ** (torch.arange(width // 4, dtype=torch.float32) / (width / 4))
    y, x = torch.meshgrid(torch.arange(high, dtype=torch.float32), torch.arange(wide, dtype=torch.float32), indexing="ij")
    parts = [f(axis.reshape(-1, 1) * speeds) for axis in (x, y) for f in (torch.sin, torch.cos)]
    return torch.cat(parts, 1)


class Resampler(torch.nn.Module):
    def __init__(self, queries, width, heads, read):
        super().__init__()
        self.query = torch.nn.Parameter(torch.zeros(queries, width))
        self.kv_proj = torch.nn.Linear(read, width, bias=False)
        self.attn = torch.nn.MultiheadAttention(width, heads)
        self.ln_q, self.ln_kv, self.ln_post = (torch.nn.LayerNorm(width, eps=1e-6) for _ in range(3))
        self.proj = torch.nn.Parameter(torch.zeros(width, width))

    def forward(self, x, high, wide):
        rows = self.ln_kv(self.kv_proj(x))
        out = self.attn(self.ln_q(self.query), rows + sines(rows.shape[1], high, wide), rows)[0]
        return self.ln_post(out) @ self.proj


class MiniCpmV(torch.nn.Module):
    def __init__(self, wanted):
        super().__init__()
        text, vision = dict(wanted["text_config"]), dict(wanted["vision_config"])
        self.llm = AutoModelForCausalLM.from_config(CONFIG_MAPPING[text.pop("model_type")](**text), dtype=torch.float32, attn_implementation="eager")
        self.vpm = SiglipVisionModel(SiglipVisionConfig(**vision, vision_use_head=False, attn_implementation="eager"))
        self.vpm = getattr(self.vpm, "vision_model", self.vpm)
        self.resampler = Resampler(wanted["query_num"], self.llm.config.hidden_size, wanted["resampler_heads"], vision["hidden_size"])
        self.strips = wanted["version"] < 2.6
        self.wanted = wanted
        self.config = SimpleNamespace(model_type="minicpmv", image_token_id=wanted["image_token_id"], vision_config=SimpleNamespace(
            model_type="minicpmv", spatial_merge_size=1, patch_size=vision["patch_size"]), text_config=self.llm.config)

    @property
    def model(self):
        return self

    def get_output_embeddings(self):
        return self.llm.get_output_embeddings()

    def rows_of(self, patches, high, wide):
        e, side = self.vpm.embeddings, self.vpm.config.image_size // self.vpm.config.patch_size
        shape = (1, high * wide) if self.strips else (high, wide)
        bounds = torch.arange(1 / side, 1.0, 1 / side)
        line, column = (torch.bucketize(torch.arange(0, 1 - 1e-6, 1 / n), bounds, right=True) for n in shape)
        place = (line[:, None] * side + column).flatten()
        x = e.patch_embedding(patches).flatten(1) + e.position_embedding(place)
        x = self.vpm.encoder(inputs_embeds=x[None]).last_hidden_state
        return self.vpm.post_layernorm(x)[0]

    def get_image_features(self, pixel_values, image_grid_thw, **_):
        made, first = [], 0
        for _, high, wide in image_grid_thw.tolist():
            made.append(self.resampler(self.rows_of(pixel_values[first: first + high * wide], high, wide), high, wide))
            first += high * wide
        return SimpleNamespace(pooler_output=made)

    def forward(self, input_ids, attention_mask=None, pixel_values=None, image_grid_thw=None, **_):
        x = self.llm.get_input_embeddings()(input_ids)
        if pixel_values is not None:
            x = x.masked_scatter((input_ids == self.config.image_token_id)[..., None], torch.cat(self.get_image_features(pixel_values, image_grid_thw).pooler_output))
        return self.llm(inputs_embeds=x, use_cache=False)

    def save_pretrained(self, folder, **_):
        os.makedirs(folder, exist_ok=True)
        tensors = {n: p.data.contiguous() for n, p in self.named_parameters()}
        save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        said = {**self.llm.config.to_dict(), **{k: v for k, v in self.wanted.items() if k != "text_config"}, "architectures": ["MiniCPMV"],
                "model_type": "minicpmv", "torch_dtype": "bfloat16", "drop_vision_last_layer": False}
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump({k: v for k, v in said.items() if v is not None}, file, indent=2, sort_keys=True)
