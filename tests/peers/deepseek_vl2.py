# SPDX-License-Identifier: Apache-2.0
"""DeepSeek-VL2 for make_seeing_numbers.py: transformers' DeepSeek-V2 (or V3), and the tower and the projector that its files' own code has."""
import json
import os
import tempfile
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file

from dots_ocr import WithTower


class Block(torch.nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.norm1, self.norm2 = (torch.nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.attn, self.mlp, self.heads = torch.nn.Module(), torch.nn.Module(), heads
        self.attn.qkv, self.attn.proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp.fc1, self.mlp.fc2 = torch.nn.Linear(width, inner), torch.nn.Linear(inner, width)

    def forward(self, x):
        q, k, v = (t.transpose(1, 2) for t in self.attn.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).unbind(2))
        shares = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).softmax(-1)
        x = x + self.attn.proj((shares @ v).transpose(1, 2).flatten(2))
        return x + self.mlp.fc2(torch.nn.functional.gelu(self.mlp.fc1(self.norm2(x)), approximate="tanh"))


class Eyes(torch.nn.Module):
    def __init__(self, v):
        super().__init__()
        width, side = v["width"], v["image_size"] // v["patch_size"]
        self.patch_embed = torch.nn.Module()
        self.patch_embed.proj = torch.nn.Conv2d(3, width, v["patch_size"], v["patch_size"])
        self.pos_embed = torch.nn.Parameter(torch.zeros(1, side * side, width))
        self.blocks = torch.nn.ModuleList(Block(width, v["heads"], int(width * v["mlp_ratio"])) for _ in range(v["layers"]))
        self.norm = torch.nn.LayerNorm(width, eps=1e-6)

    def forward(self, squares):
        x = self.patch_embed.proj(squares).flatten(2).transpose(1, 2) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class DeepseekVl2(WithTower):
    def __init__(self, wanted):
        vision, hidden = wanted["vision_config"], wanted["text_config"]["hidden_size"]
        super().__init__({**wanted, "vision_config": {**vision, "spatial_merge_size": 2}}, "vision", Eyes(vision))
        self.wanted = wanted
        self.config.vision_config.image_size = vision["image_size"]
        self.projector = torch.nn.Module()
        self.projector.layers = torch.nn.Sequential(torch.nn.Linear(4 * vision["width"], hidden), torch.nn.GELU(), torch.nn.Linear(hidden, hidden))
        self.image_newline, self.view_seperator = torch.nn.Parameter(torch.zeros(hidden)), torch.nn.Parameter(torch.zeros(hidden))

    def rows(self, squares):
        """[squares, 3, side, side] as [squares, cells, cells, hidden]: what lacks to whole cells is nothing."""
        x = self.vision(squares)
        side = int(x.shape[1] ** 0.5)
        x = torch.nn.functional.pad(x.unflatten(1, (side, side)), (0, 0, 0, side % 2, 0, side % 2))
        x = torch.nn.functional.unfold(x.permute(0, 3, 1, 2), 2, stride=2).transpose(1, 2)
        return self.projector.layers(x).unflatten(1, ((side + 1) // 2, -1))

    def lines(self, x):
        return torch.cat([x, self.image_newline.expand(len(x), 1, -1)], 1).flatten(0, 1)

    def get_image_features(self, pixel_values, image_sizes, **_):
        made = []
        for squares, (height, width) in zip(pixel_values, image_sizes.tolist()):
            high, wide = height // squares.shape[-1], width // squares.shape[-1]
            x = self.rows(squares[: 1 + high * wide])
            grid = x[1:].unflatten(0, (high, wide)).transpose(1, 2).flatten(2, 3).flatten(0, 1)
            made.append(torch.cat([self.lines(x[0]), self.view_seperator[None], self.lines(grid)]))
        return SimpleNamespace(pooler_output=made)

    def save_pretrained(self, folder, **_):
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryDirectory() as text:  # experts one by one, as its files have them
            self.llm[0].save_pretrained(text)
            tensors = {"language." + n: t for n, t in load_file(os.path.join(text, "model.safetensors")).items()}
        tensors.update({n: p.data.contiguous() for n, p in self.named_parameters() if not n.startswith(("model.", "lm_head."))})
        save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        text = {k: v for k, v in self.llm[0].config.to_dict().items() if k in self.wanted["text_config"] or k in ("kv_lora_rank", "q_lora_rank")}
        said = {**{k: v for k, v in self.wanted.items() if k not in ("text_config", "architectures")}, "torch_dtype": "bfloat16",
                "language_config": {**text, **self.wanted["language_config"], "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"]}}
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(said, file, indent=2, sort_keys=True)
