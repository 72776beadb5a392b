# SPDX-License-Identifier: Apache-2.0
"""Step3-VL for make_seeing_numbers.py: transformers' Qwen3 behind the tower of its Step 3.7, which is the same, and one linear layer."""
import json
import os
import tempfile
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file
from transformers.models.step3p7.configuration_step3p7 import Step3p7VisionConfig
from transformers.models.step3p7.modeling_step3p7 import Step3p7VisionModel

from dots_ocr import WithTower


class Step3VL(WithTower):
    def __init__(self, wanted):
        vision, hidden = wanted["vision_config"], wanted["text_config"]["hidden_size"]
        sizes = {k: vision[k] for k in ("width", "layers", "heads", "mlp_ratio", "image_size", "patch_size", "ls_init_value")}
        eyes = Step3p7VisionModel(Step3p7VisionConfig(**sizes, attn_implementation="eager"))
        super().__init__({**wanted, "vision_config": {**vision, "spatial_merge_size": 1}}, "vision_model", eyes)
        self.wanted, self.vit_large_projector = wanted, torch.nn.Linear(4 * vision["width"], hidden, bias=False)

    def get_image_features(self, pixel_values, image_grid_thw, **_):
        """Squares of one picture or of several, of different sizes, each with its rows of patches."""
        made, first, side = [], 0, self.config.vision_config.patch_size
        for _, high, wide in image_grid_thw.tolist():
            own = pixel_values[first: first + high * wide].view(high, wide, 3, side, side).permute(2, 0, 3, 1, 4).reshape(1, 3, high * side, wide * side)
            first += high * wide
            made.append(self.vit_large_projector(self.vision_model(own).last_hidden_state[0]))
        return SimpleNamespace(pooler_output=made)

    def save_pretrained(self, folder, **_):
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryDirectory() as tower:  # under the names of its files
            self.vision_model.save_pretrained(tower)
            tensors = {"vision_model." + n: t for n, t in load_file(os.path.join(tower, "model.safetensors")).items()}
        tensors.update({n: p.data.contiguous() for n, p in self.named_parameters() if not n.startswith("vision_model.")})
        save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        text = {k: v for k, v in self.llm[0].config.to_dict().items() if v is not None and k != "dtype"}
        said = {**self.wanted, "text_config": text, "torch_dtype": "bfloat16"}
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(said, file, indent=2, sort_keys=True)
