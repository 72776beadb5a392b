# SPDX-License-Identifier: Apache-2.0
"""Keye-VL 1 and 1.5 for make_seeing_numbers.py: transformers' PaddleOCR-VL, which has their tower, with Qwen3's normalised heads,
and of 1.5 with a projector that normalises cells of four patches. Files are laid out and named as Keye's own."""
import json
import os
from types import MethodType

import torch
from safetensors.torch import save_file
from transformers import AutoModelForImageTextToText
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

NAMES = (("model.visual.", "visual."), ("model.projector.", "mlp_AR."), ("model.language_model.", "model."))


def keye_name(name):
    for old, new in NAMES:
        if name.startswith(old):
            return new + name[len(old):]
    return name


def normalise_heads(attention, size, eps):
    for which in ("q", "k"):
        norm = torch.nn.RMSNorm(size, eps=eps)
        setattr(attention, which + "_norm", norm)
        getattr(attention, which + "_proj").register_forward_hook(lambda _, __, out, norm=norm: norm(out.unflatten(-1, (-1, size))).flatten(-2))


def project_cells(projector, features, grids):
    made, m = [], projector.merge_kernel_size[0]
    for rows, (_, high, wide) in zip(features.split(grids.prod(1).tolist()), grids.tolist()):
        cells = rows.view(-1, high // m, m, wide // m, m, rows.shape[-1]).transpose(2, 3).flatten(3).flatten(0, 2)
        made.append(projector.linear_2(projector.act(projector.linear_1(projector.pre_norm(cells)))))
    return torch.cat(made)


def save(wanted):
    def save_pretrained(model, folder, **_):
        os.makedirs(folder, exist_ok=True)
        tensors = {keye_name(n): p.data.contiguous() for n, p in model.named_parameters()}
        save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        text, vision = dict(wanted["text_config"]), dict(wanted["vision_config"])
        rope = text.pop("rope_parameters")
        said = {**text, "rope_theta": rope["rope_theta"], "rope_scaling": {"mrope_section": rope["mrope_section"], "rope_type": "default", "type": "default"},
                "vision_config": vision, "image_token_id": wanted["image_token_id"], "video_token_id": wanted["video_token_id"],
                "architectures": wanted["architectures"], "model_type": wanted["model_type"], "torch_dtype": "bfloat16"}
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(said, file, indent=2, sort_keys=True)
    return save_pretrained


def make_keye(wanted):
    config = CONFIG_MAPPING["paddleocr_vl"](**{k: v for k, v in wanted.items() if k not in ("model_type", "architectures")})
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32, attn_implementation="eager")
    text = config.text_config
    for layer in model.model.language_model.layers:
        normalise_heads(layer.self_attn, text.head_dim, text.rms_norm_eps)
    if wanted["model_type"] == "KeyeVL1_5":
        projector = model.model.projector
        projector.pre_norm = torch.nn.LayerNorm(projector.linear_1.in_features, eps=1e-5)
        projector.forward = MethodType(project_cells, projector)
    model.save_pretrained = MethodType(save(wanted), model)
    return model
