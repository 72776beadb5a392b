# SPDX-License-Identifier: Apache-2.0
"""The numbers of a family that sees: a tiny checkpoint of random weights and what transformers computes with it, as the tests read them.

  make_seeing_numbers.py CONFIG.json tests/data/models/NAME [--seed N]

CONFIG.json is a config.json with small sizes: a text part of two layers and some 160 words, a tower of two or three. Kimi-VL, which
transformers does not know, is given as kimi_k25, which sees pictures as it does, where NAME is kimi_vl; Ovis 1.6 and 2 in their own
layout as ovis2, where NAME is ovis_aimv2, or ovis_siglip with "own_tower", the settings of SigLIP; Llava 1.6 in its authors' layout as llava_next, where NAME is llava_mistral; GOT-OCR 2.0 in its authors' layout as got_ocr2, where NAME is got_qwen; DeepSeek-OCR as unlimited_ocr with a window that no text fills, where NAME is
deepseek_vl_v2; Janus as deepseek_vl, where NAME is multi_modality; MiniCPM-V with its
"version" (minicpmv.py); ERNIE 4.5 VL in its authors' layout as ernie4_5_vl_moe, where NAME is ernie4_5_moe_vl; dots.ocr (dots_ocr.py); DeepSeek-VL2 (deepseek_vl2.py); Phi-3-vision (phi3_v.py); SAIL-VL2 (sail_vl.py); Gemma 3n (gemma3n.py); Step3-VL (step3_vl.py); Molmo2's pictures (molmo2.py); Keye-VL (keye.py); LLaVA-OneVision 1.5 (llava_onevision1_5.py). Written are
checkpoint/, golden.json and golden.safetensors. Weights are rounded to bfloat16, and all is computed in float32, each row for itself."""
import json
import os
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

import gemma3n
import mllama
import molmo2
from deepseek_vl2 import DeepseekVl2
from dots_ocr import DotsOcr
from keye import make_keye
from llava_onevision1_5 import LlavaOneVision15
from make_numbers import asked, loss_of, on_disk, place
from minicpmv import MiniCpmV
from phi3_v import Phi3V
from random_weights import random_weights
from sail_vl import SailVl
from step3_vl import Step3VL

NEW_TOKENS = 12
LARGEST_GRADIENT = 600  # numbers in a gradient that is kept whole; of larger ones the norm is kept
GEMMA4 = ("gemma4", "gemma4_unified")
# Of each row the words before, between and behind its pictures.
ROWS = ((3, 2, 5), (4, 6))
# As many as no tiny model's words are; above it are tokens that Molmo2 alone has.
WORDS = 160
# Height and width of the pictures in patches, or of what they were before they became tiles in pixels.
SIZES = ((4, 6), (2, 4), (6, 4))


def merge_of(vision):
    """Patches a side of what becomes one row; None where pictures do not come as patches with their number in time, height and width."""
    if hasattr(vision, "window_kernel_size"):
        return 4  # 2 x 2 among the blocks, and again behind them
    return getattr(vision, "spatial_merge_size", None) or getattr(vision, "merge_kernel_size", [None])[0]


def has_grids(config):
    return config.vision_config.model_type != "pixtral" and merge_of(config.vision_config) is not None


def patches_of(config, time, height, width):
    vision, side = config.vision_config, config.vision_config.patch_size
    count, grid = time * height * width, torch.tensor([[time, height, width]])
    if config.model_type == "ernie4_5_vl_moe":
        return torch.randn(count, 3 * side ** 2), grid
    if hasattr(vision, "temporal_patch_size") and config.model_type != "hunyuan_vl":
        return torch.randn(count, vision.in_channels * vision.temporal_patch_size * side ** 2), grid
    return torch.randn(count, 3, side, side), grid  # line after line


# transformers 5.24 writes some tensors of Kimi and Qianfan-OCR under names that no other program reads; those of their files.
HUB_NAMES = {"language_model.model.encoder.layers.": "language_model.model.layers.",
             "language_model.model.blocks.": "language_model.model.layers.", "vision_tower.encoder.patch_embed.": "vision_tower.patch_embed.",
             "model.mm_projector.pre_norm": "mm_projector.pre_norm"}
KIMI_VL_NAMES = {"mm_projector.pre_norm": "multi_modal_projector.pre_norm", "mm_projector.proj.0": "multi_modal_projector.linear_1",
                 "mm_projector.proj.2": "multi_modal_projector.linear_2"}


def renamed(tensors, names):
    new_name = lambda name: next((new + name[len(old):] for old, new in names.items() if name.startswith(old)), name)
    return {new_name(name): t for name, t in tensors.items()}


def hub_names(tensors, kimi_vl=False):
    tensors = renamed(tensors, HUB_NAMES)
    return renamed(tensors, KIMI_VL_NAMES) if kimi_vl else tensors


def save_as_hub(checkpoint, kimi_vl=False):
    weights = os.path.join(checkpoint, "model.safetensors")
    save_file(hub_names(load_file(weights), kimi_vl), weights, {"format": "pt"})


def write_as_kimi_vl(checkpoint):
    """What transformers wrote of kimi_k25, in the words of Kimi-VL's files."""
    save_as_hub(checkpoint, kimi_vl=True)
    path = os.path.join(checkpoint, "config.json")
    said = json.load(open(path, encoding="utf-8"))
    vision = said["vision_config"]
    taken = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "patch_size", "merge_kernel_size")
    said = {"architectures": ["KimiVLForConditionalGeneration"], "model_type": "kimi_vl", "media_placeholder_token_id": said["image_token_id"],
            "text_config": said["text_config"], "torch_dtype": "bfloat16", "vocab_size": said["text_config"]["vocab_size"],
            "vision_config": {"model_type": "moonvit", "init_pos_emb_height": vision["pos_emb_height"],
                              "init_pos_emb_width": vision["pos_emb_width"], **{name: vision[name] for name in taken}}}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(said, file, indent=2, sort_keys=True)


class SiglipWords(torch.nn.Module):
    """Ovis 1.6's tower: SigLIP's last states without the norm behind them, squares of them as shares of words."""

    def __init__(self, vision, own):
        super().__init__()
        from transformers import SiglipVisionConfig, SiglipVisionModel
        self.backbone, self.stride = SiglipVisionModel(SiglipVisionConfig(**own)), vision.hidden_stride
        self.num_visual_indicator_tokens = vision.num_visual_indicator_tokens
        words = vision.vocab_size - vision.num_visual_indicator_tokens
        self.head_linear = torch.nn.Linear(own["hidden_size"] * self.stride ** 2, words, bias=False)
        self.head_norm = torch.nn.LayerNorm(words)

    def forward(self, pixel_values, **_):
        x = self.backbone(pixel_values, output_hidden_states=True).hidden_states[-1]
        side, s = int(x.shape[1] ** 0.5), self.stride
        more = -side % s
        x = torch.nn.functional.pad(x.unflatten(1, (side, side)), (0, 0, 0, more, 0, more))
        x = x.unflatten(2, (-1, s)).unflatten(1, (-1, s)).transpose(2, 3).flatten(3).flatten(1, 2)
        shares = self.head_norm(self.head_linear(x)).softmax(-1)
        return transformers.models.ovis2.modeling_ovis2.BaseModelOutputWithVisualIndicatorFeatures(last_hidden_state=x, pooler_output=shares)


def as_own_ovis(model, wanted):
    vision = model.config.vision_config
    if "own_tower" in wanted:
        model.model.vision_tower = SiglipWords(vision, wanted["own_tower"])
    else:
        model.model.vision_tower.transformer.rms_norm = torch.nn.Identity()
    random_weights(model)


# Of Ovis's own files, and what is fused there.
OVIS_NAMES = (("model.visual_embeddings_table.", "vte."), ("model.language_model.", "llm.model."), ("lm_head.", "llm.lm_head."),
              ("model.vision_tower.head_linear.", "visual_tokenizer.head.0."), ("model.vision_tower.head_norm.", "visual_tokenizer.head.1."),
              ("model.vision_tower.backbone.", "visual_tokenizer.backbone.vision_model."),
              ("model.vision_tower.transformer.embeddings.patch_embedding.", "visual_tokenizer.backbone.preprocessor.patchifier.proj."),
              ("model.vision_tower.transformer.embeddings.rms_norm.", "visual_tokenizer.backbone.preprocessor.patchifier.norm."),
              ("model.vision_tower.transformer.embeddings.position_embedding.weight", "visual_tokenizer.backbone.preprocessor.pos_embed"),
              ("model.vision_tower.transformer.encoder.layers.", "visual_tokenizer.backbone.trunk.blocks."),
              (".vision_model.vision_model.", ".vision_model."),
              (".attention.out_proj.", ".attn.proj."), (".rms_norm1.", ".norm_1."), (".rms_norm2.", ".norm_2."),
              (".ffn.gate_proj.", ".mlp.fc1."), (".ffn.up_proj.", ".mlp.fc3."), (".ffn.down_proj.", ".mlp.fc2."))


def ovis_names(tensors):
    out = {}
    for name, t in tensors.items():
        own = ".vision_model.head." in name or "vision_tower.transformer" not in name
        for old, new in OVIS_NAMES:
            if not (own and old.startswith(".") and not old.startswith(".vision_model")):
                name = name.replace(old, new)
        out[name] = t[None] if name.endswith("pos_embed") else t
    for name in [n for n in out if ".attention.q_proj." in n]:
        parts = [out.pop(name.replace("q_proj", p)) for p in ("q_proj", "k_proj", "v_proj")]
        out[name.replace("attention.q_proj", "attn.qkv")] = torch.cat(parts)
    return out


def write_as_ovis(checkpoint, model, wanted):
    path, vision = os.path.join(checkpoint, "config.json"), model.config.vision_config.to_dict()
    tensors = ovis_names({n: p for n, p in model.state_dict().items() if n != "lm_head.weight" or not model.config.tie_word_embeddings})
    if "own_tower" not in wanted:
        tensors["visual_tokenizer.backbone.trunk.post_trunk_norm.weight"] = torch.rand(vision["hidden_size"]).to(torch.bfloat16)
    save_file({n: t.contiguous() for n, t in tensors.items()}, os.path.join(checkpoint, "model.safetensors"), {"format": "pt"})
    said = json.load(open(path, encoding="utf-8"))
    aimv2 = {"model_type": "aimv2", "use_bias": False, **{k: vision[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "image_size", "patch_size", "qkv_bias", "rms_norm_eps")}}
    backbone = {"model_type": "siglip_vision_model", **wanted["own_tower"]} if "own_tower" in wanted else aimv2
    tokenizer = {"model_type": backbone["model_type"].split("_")[0] + "_visual_tokenizer", "backbone_config": backbone, "tokenize_function": "softmax",
                 "drop_cls_token": False, **{k: vision[k] for k in ("hidden_stride", "vocab_size")}}
    said = {"architectures": ["Ovis"], "model_type": "ovis", "llm_config": said["text_config"], "torch_dtype": "bfloat16",
            "visual_tokenizer_config": tokenizer, "vocab_size": said["text_config"]["vocab_size"]}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(said, file, indent=2, sort_keys=True)


# Of Janus' files, whose tower is timm's.
JANUS_NAMES = (("model.language_model.", "language_model.model."), ("lm_head.", "language_model.lm_head."), ("model.aligner.linear1.", "aligner.layers.0."),
               ("model.aligner.linear2.", "aligner.layers.2."), ("model.vision_model.embeddings.patch_embedding.", "vision_model.vision_tower.patch_embed.proj."),
               ("model.vision_model.embeddings.position_embedding.weight", "vision_model.vision_tower.pos_embed"),
               ("model.vision_model.post_layernorm.", "vision_model.vision_tower.norm."), ("model.vision_model.encoder.layers.", "vision_model.vision_tower.blocks."),
               (".layer_norm1.", ".norm1."), (".layer_norm2.", ".norm2."), (".self_attn.out_proj.", ".attn.proj."))


def janus_names(tensors):
    out = {}
    for name, t in tensors.items():
        for old, new in JANUS_NAMES:
            if not old.startswith(".") or "vision_tower" in name:
                name = name.replace(old, new)
        out[name] = t[None] if name.endswith("pos_embed") else t
    for name in [n for n in out if "vision_tower" in n and ".self_attn.q_proj." in n]:
        out[name.replace("self_attn.q_proj", "attn.qkv")] = torch.cat([out.pop(name.replace("q_proj", p)) for p in ("q_proj", "k_proj", "v_proj")])
    return out


def write_as_janus(checkpoint, model):
    path, vision = os.path.join(checkpoint, "config.json"), model.config.vision_config
    tensors = janus_names(model.state_dict())
    tensors["gen_embed.weight"] = torch.zeros(3, 2).to(torch.bfloat16)  # of what draws
    save_file({n: t.contiguous() for n, t in tensors.items()}, os.path.join(checkpoint, "model.safetensors"), {"format": "pt"})
    said = json.load(open(path, encoding="utf-8"))
    tower = {"image_size": vision.image_size, "model_name": "siglip_large_patch16_384", "select_feature": "same", "select_layer": -1, "width": vision.hidden_size,
             "layers": vision.num_hidden_layers, "heads": vision.num_attention_heads, "ffn": vision.intermediate_size, "patch_size": vision.patch_size}
    said = {"architectures": ["MultiModalityCausalLM"], "model_type": "multi_modality", "language_config": said["text_config"], "torch_dtype": "bfloat16",
            "aligner_config": {"cls": "MlpProjector", "params": {"depth": 2, "projector_type": "mlp_gelu"}}, "gen_vision_config": {"cls": "VQ-16"},
            "image_token_id": model.config.image_token_id, "vision_config": {"cls": "CLIPVisionTower", "params": tower}}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(said, file, indent=2, sort_keys=True)


# Of Llava's own files.
LLAVA_NAMES = {"model.language_model.": "model.", "language_model.model.": "model.", "language_model.lm_head.": "lm_head.", "image_newline": "model.image_newline",
               "model.vision_tower.": "model.vision_tower.vision_tower.vision_model.", "vision_tower.": "model.vision_tower.vision_tower.vision_model.",
               **{f"{begin}multi_modal_projector.linear_{i}.": f"model.mm_projector.{2 * i - 2}." for begin in ("model.", "") for i in (1, 2)}}


def write_as_own_llava(checkpoint):
    weights, path = os.path.join(checkpoint, "model.safetensors"), os.path.join(checkpoint, "config.json")
    save_file(renamed(load_file(weights), LLAVA_NAMES), weights, {"format": "pt"})
    said = json.load(open(path, encoding="utf-8"))
    said = {**said["text_config"], "dtype": "bfloat16", "architectures": ["LlavaMistralForCausalLM"], "model_type": "llava_mistral", "image_aspect_ratio": "anyres",
            "image_grid_pinpoints": [[width, height] for height, width in said["image_grid_pinpoints"]], "mm_patch_merge_type": "spatial_unpad",
            "mm_projector_type": "mlp2x_gelu", "mm_vision_select_feature": "patch", "mm_vision_select_layer": said["vision_feature_layer"],
            "mm_vision_tower": "of a tower of this test's", "vision_config": said["vision_config"]}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(said, file, indent=2, sort_keys=True)


# Of GOT-OCR 2.0's authors' files.
GOT_NAMES = (("model.language_model.", "model."), ("language_model.model.", "model."), ("language_model.lm_head.", "lm_head."),
             ("multi_modal_projector.conv_upsampler1.", "vision_tower_high.net_2."), ("multi_modal_projector.conv_upsampler2.", "vision_tower_high.net_3."),
             ("multi_modal_projector.multimodal_projector.", "mm_projector_vary."), ("vision_tower.", "vision_tower_high."),
             ("patch_embed.projection.", "patch_embed.proj."), ("vision_tower_high.layers.", "vision_tower_high.blocks."), (".layer_norm1.", ".norm1."), (".layer_norm2.", ".norm2."),
             ("neck.conv1.", "neck.0."), ("neck.norm1.", "neck.1."), ("neck.conv2.", "neck.2."), ("neck.norm2.", "neck.3."))


def got_names(tensors):
    out = {}
    for name, t in tensors.items():
        for old, new in GOT_NAMES:
            name = name.replace(old, new, 1)
        out["model." + name if name.startswith(("vision_tower_high.", "mm_projector_vary.")) else name] = t
    return out


def write_as_own_got(checkpoint):
    weights, path = os.path.join(checkpoint, "model.safetensors"), os.path.join(checkpoint, "config.json")
    save_file(got_names(load_file(weights)), weights, {"format": "pt"})
    said = json.load(open(path, encoding="utf-8"))
    said = {**said["text_config"], "dtype": "bfloat16", "architectures": ["GOTQwenForCausalLM"], "model_type": "GOT", "im_patch_token": said["image_token_index"],
            "im_start_token": said["image_token_index"] - 2, "use_im_start_end": True, "image_token_len": 256, "tie_word_embeddings": said["tie_word_embeddings"],
            "vision_config": said["vision_config"]}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(said, file, indent=2, sort_keys=True)


ERNIE_NAMES = {"model.vision_model.": "vision_model."}
ERNIE_MARKS = tuple(f"{kind}_{side}_token_id" for kind in ("image", "video") for side in ("start", "end"))


def write_as_own_ernie(checkpoint):
    """Both in the words of ERNIE's authors: the text's settings at the top, and the tower beside the model."""
    weights, path = os.path.join(checkpoint, "model.safetensors"), os.path.join(checkpoint, "config.json")
    save_file(renamed(load_file(weights), ERNIE_NAMES), weights, {"format": "pt"})
    said = json.load(open(path, encoding="utf-8"))
    text, vision = said["text_config"], said["vision_config"]
    rope, experts, layers = text.pop("rope_parameters"), text.pop("moe_num_experts"), text.pop("mlp_layer_types")
    first = layers.index("sparse")
    tower = {**{k: vision[k] for k in ("depth", "hidden_act", "hidden_size", "in_channels", "num_heads", "patch_size", "spatial_merge_size")},
             "embed_dim": vision["hidden_size"], "mlp_ratio": vision["intermediate_size"] / vision["hidden_size"], "model_type": "DFNRope_vision_transformer"}
    said = {**text, "architectures": said["architectures"], "model_type": "ernie4_5_moe_vl", "dtype": "bfloat16", "freq_allocation": rope["mrope_section"][2],
            "im_patch_id": said["image_token_id"], "moe_layer_end_index": [len(layers), len(layers) - 1], "moe_layer_interval": 1, "moe_layer_start_index": [first, first],
            "moe_num_experts": [experts, experts], "rope_3d": True, "rope_theta": rope["rope_theta"], "spatial_conv_size": vision["spatial_merge_size"],
            "temporal_conv_size": vision["temporal_merge_size"], "vision_config": tower, **{k: said[k] for k in (*ERNIE_MARKS, "video_token_id")}}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(said, file, indent=2, sort_keys=True)


def write_as_deepseek_ocr(checkpoint, config):
    path, sam, clip = os.path.join(checkpoint, "config.json"), config.vision_config.sam_config, config.vision_config.encoder_config
    said = json.load(open(path, encoding="utf-8"))
    text = {k: v for k, v in said["text_config"].items() if k not in ("model_type", "mlp_layer_types", "layer_types", "sliding_window")}
    text.update({"architectures": ["DeepseekV2ForCausalLM"], "use_mla": False, "first_k_dense_replace": 1, "q_lora_rank": None, "kv_lora_rank": None})
    width = {"clip-l-14-224": {"heads": clip.num_attention_heads, "image_size": clip.image_size, "layers": clip.num_hidden_layers,
                               "patch_size": clip.patch_size, "width": clip.hidden_size},
             "sam_vit_b": {"downsample_channels": sam.downsample_channels, "global_attn_indexes": sam.global_attn_indexes, "heads": sam.num_attention_heads,
                           "layers": sam.num_hidden_layers, "width": sam.hidden_size, "patch_size": sam.patch_size, "window_size": sam.window_size,
                           "output_channels": sam.output_channels}}
    said = {"architectures": ["DeepseekOCRForCausalLM"], "model_type": "deepseek_vl_v2", "image_token_id": said["image_token_id"], "tile_tag": "2D",
            "language_config": text, "torch_dtype": "bfloat16", "vocab_size": text["vocab_size"],
            "vision_config": {"image_size": sam.image_size, "model_name": "deeplip_b_l", "model_type": "vision", "width": width}}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(said, file, indent=2, sort_keys=True)


def in_blocks(config, given):
    """Patches that came line after line as rows, in the order of what becomes one."""
    if "pixel_values" not in given or given["pixel_values"].dim() == 2 or "image_grid_thw" not in given:
        return given
    merge, rows, first = merge_of(config.vision_config), [], 0
    for time, height, width in given["image_grid_thw"].tolist():
        own = given["pixel_values"][first: first + time * height * width].flatten(1)
        first += len(own)
        own = own.reshape(time, height // merge, merge, width // merge, merge, -1).transpose(2, 3)
        rows.append(own.reshape(time * height * width, -1))
    return {**given, "pixel_values": torch.cat(rows)}


def placed_patches(vision, count, height, width):
    """Pictures of Gemma 4, line after line, filled up to 24 patches: numbers from 0 to 1, and the column and line of each."""
    side = getattr(vision, "model_patch_size", vision.patch_size)
    pixels, places = torch.zeros(count, 24, 3 * side ** 2), torch.full((count, 24, 2), -1)
    pixels[:, :height * width] = torch.rand(count, height * width, pixels.shape[2])
    places[:, :height * width] = torch.tensor([(x, y) for y in range(height) for x in range(width)])
    return pixels, places


def pictures_of(config, number):
    """What a processor makes of one picture, under the names of the model's arguments."""
    if config.model_type == "mllama":
        return mllama.picture(config, number)
    vision, size = config.vision_config, SIZES[number]
    if config.model_type == "molmo2":
        return molmo2.picture(config, number)
    if config.model_type == "gemma3n":
        return gemma3n.picture()
    if config.model_type == "minicpmv" and number == 0:
        size = (5, 25)  # where a patch's place depends on how it is rounded
    if config.model_type in ("phi3_v", "deepseek_vl_v2"):
        (high, wide), side = ((1, 2), (2, 1), (1, 1))[number], config.vision_config.image_size
        return {"pixel_values": torch.randn(1, 1 + high * wide, 3, side, side), "image_sizes": torch.tensor([[high * side, wide * side]])}
    if config.model_type in GEMMA4:
        return dict(zip(("pixel_values", "image_position_ids"), placed_patches(vision, 1, *size)))
    if config.model_type == "lfm2_vl":  # filled up to 24 patches
        pixels, (height, width) = torch.zeros(1, 24, 3 * vision.patch_size ** 2), size
        pixels[:, :height * width] = torch.randn(height * width, pixels.shape[2])
        mask = (torch.arange(24) < height * width).int()
        return {"pixel_values": pixels, "spatial_shapes": torch.tensor([size]), "pixel_attention_mask": mask[None]}
    if hasattr(vision, "sam_config"):  # two tiles and all of a page, or that alone
        tiles = (0, 1, 0)[number % 3] if config.model_type == "deepseek_ocr2" else (0, 4, 1)[number % 3]
        side, tile = vision.sam_config.image_size, vision.sam_config.image_size * 5 // 8
        return {"pixel_values": torch.randn(1, 3, side, side), "pixel_values_local": torch.randn(tiles, 3, tile, tile),
                "num_local_patches": torch.tensor([tiles]), "patches_grid": torch.tensor([[min(tiles, 2) or 1, max(tiles // 2, 1)]])}
    if has_grids(config):
        more = 2 if merge_of(vision) == 4 else 1
        return dict(zip(("pixel_values", "image_grid_thw"), patches_of(config, 1, *(more * n for n in size))))
    if vision.model_type == "pixtral":
        step = vision.patch_size * getattr(config, "spatial_merge_size", 1)
        height, width = size[0] // 2 * step, size[1] // 2 * step
        return {"pixel_values": torch.randn(1, 3, height, width), "image_sizes": torch.tensor([[height, width]])}
    side = vision.image_size[0] if isinstance(vision.image_size, (list, tuple)) else vision.image_size
    if hasattr(config, "image_grid_pinpoints"):
        height, width = size[0] * 5 + 1, size[1] * 5
        tiles = transformers.models.llava_next.modeling_llava_next.image_size_to_num_patches(
            torch.tensor([height, width]), config.image_grid_pinpoints, side)
        return {"pixel_values": torch.randn(1, int(tiles), 3, side, side), "image_sizes": torch.tensor([[height, width]])}
    if hasattr(config, "scale_factor"):
        return {"pixel_values": torch.randn(1, 1 + size[0] // 3, 3, side, side)}
    return {"pixel_values": torch.randn(1, 3, side, side)}


def together(parts):
    """Pictures of a batch, padded to the largest with zeros."""
    out = {}
    if parts and "image_token_pooling" in parts[0]:
        return molmo2.together(parts)
    for name in parts[0] if parts else ():
        rest = [max(p[name].shape[d] for p in parts) for d in range(1, parts[0][name].dim())]
        out[name] = torch.cat([torch.nn.functional.pad(p[name], [x for d in range(p[name].dim() - 1, 0, -1)
                                                                  for x in (0, rest[d - 1] - p[name].shape[d])]) for p in parts])
    return out


def as_arguments(model, given):
    """Of MiniCPM-V: patches side by side in one strip, and sizes without time. Of pages: lists of numbers."""
    if "num_local_patches" in given:
        given = {**given, "num_local_patches": given["num_local_patches"].tolist(), "patches_grid": given["patches_grid"].tolist()}
        if not len(given["pixel_values_local"]):
            del given["pixel_values_local"]
        if model.config.model_type == "deepseek_ocr2":
            del given["patches_grid"]
        return given
    if model.config.model_type == "hunyuan_vl" and given:
        return {**given, "pixel_values": given["pixel_values"].flatten(1)}
    if "image_grid_thw" not in given or model.config.model_type != "minicpmv4_6":
        return given
    patches = given["pixel_values"]
    strip = patches.permute(1, 2, 0, 3).reshape(1, patches.shape[1], patches.shape[2], -1)
    return {"pixel_values": strip, "target_sizes": given["image_grid_thw"][:, 1:].int()}


def features_of(model, pictures):
    if model.config.model_type == "mllama":
        return [mllama.features_of(model, pictures)]
    if model.config.model_type == "llama4":  # each tile for itself
        made = model.get_image_features(**pictures, return_dict=True).last_hidden_state
        return [model.multi_modal_projector(made.flatten(0, 1))]
    made = model.model.get_image_features(**as_arguments(model, pictures), return_dict=True).pooler_output
    return list(made)


class Run:
    def __init__(self, model, config):
        self.model, self.config, self.token = model, config, config.image_token_id
        self.whole = config.model_type == "gemma3"
        self.placed = has_grids(config) and hasattr(model.model, "get_rope_index") and config.model_type != "exaone4_5"

    def kinds_of(self, row, given):
        """Of each token: 0 words, 1 pictures, 2 videos, which have the pictures' token or their own."""
        if self.config.model_type == "ernie4_5_vl_moe":
            ids = torch.tensor([row])
            return (ids == self.token).int() + 2 * (ids == self.config.video_token_id).int()
        return (torch.tensor([row]) == self.token).int() * (2 if "video_grid_thw" in given else 1)

    def positions(self, row, pictures):
        """[tokens], or [3, tokens] of time, height and width."""
        given = {name: t for name, t in together(pictures).items() if "grid" in name}
        if not self.placed or not given:
            return torch.arange(len(row)).expand(3, -1) if self.placed else torch.arange(len(row))
        return self.model.model.get_rope_index(torch.tensor([row]), self.kinds_of(row, given), **given)[0][:, 0]

    def __call__(self, row, pictures):
        given = together(pictures)
        if self.config.model_type == "mllama":
            given = mllama.arguments(self.config, row, given)
        if self.config.model_type == "molmo2":
            given["mm_token_type_ids"] = molmo2.kinds(self.config, row)
        if self.whole:
            given["token_type_ids"] = (torch.tensor([row]) == self.token).int()
        if getattr(self.config.text_config, "use_bidirectional_attention", None) == "vision":
            video = torch.tensor([row]) == self.config.video_token_id
            given["mm_token_type_ids"] = (torch.tensor([row]) == self.token).int() + 2 * video.int()
        if self.placed and given:
            given["mm_token_type_ids"] = self.kinds_of(row, given)
        if self.config.model_type == "ernie4_5_vl_moe" and given:  # what begins and ends media is theirs
            marks = torch.isin(torch.tensor([row]), torch.tensor([getattr(self.config, name) for name in ERNIE_MARKS]))
            given["moe_mm_token_type_ids"] = given["mm_token_type_ids"].maximum(marks.int())
        if self.config.model_type == "paligemma" and given:  # up to the picture's end each token sees all others
            end = len(row) - row[::-1].index(self.token)
            given["token_type_ids"] = (torch.arange(len(row)) >= end).int()[None]
        last = []
        hook = self.model.get_output_embeddings().register_forward_pre_hook(lambda m, args: last.append(args[0]))
        out = self.model(input_ids=torch.tensor([row]), attention_mask=torch.ones(1, len(row), dtype=torch.long), use_cache=False, **as_arguments(self.model, given))
        hook.remove()
        return out.logits[0], last[0][0]


def placeholders(config):
    """Tokens that stand for media, which no text has."""
    marks = [getattr(config, name) for name in ERNIE_MARKS] if config.model_type == "ernie4_5_vl_moe" else getattr(config, "visual_indicator_token_ids", ())
    return {*(getattr(config, f"{kind}_token_id", config.image_token_id) for kind in ("image", "video", "audio")), *marks}


def labels_of(row, token):
    """The first third of a row and its pictures are not learnt; nor are tokens that only pictures have."""
    return torch.tensor([-100 if i < len(row) // 3 or t == token or (token >= WORDS and t >= WORDS) else t for i, t in enumerate(row)])


def make_rows(config, model):
    """Ids of the rows with as many tokens of a picture as the model makes of it, and the pictures of each."""
    words = lambda n: [t for t in torch.randint(3, config.text_config.vocab_size, (4 * n,)).tolist() if t not in placeholders(config)][:n]
    rows, pictures, number = [], [], 0
    own_rows = {"paligemma": ((0, 8), (0, 6)), "mllama": mllama.ROWS}  # PaliGemma's pictures stand before all words
    for lengths in own_rows.get(config.model_type, ROWS):
        row, own = words(lengths[0]), []
        for length in lengths[1:]:
            own.append(pictures_of(config, number))
            number += 1
            with torch.no_grad():
                stands = molmo2.tokens_of(config, own[-1]) if config.model_type == "molmo2" else [config.image_token_id] * len(features_of(model, own[-1])[0])
            if config.model_type == "mllama":
                stands = stands[:1]
            if config.model_type == "ernie4_5_vl_moe":
                stands = [config.image_start_token_id, *stands, config.image_end_token_id]
            row += stands + words(length)
        rows.append(row)
        pictures.append(own)
    return rows, pictures, words(10)


def placed_positions(rows, width, left):
    """[rows, width], or [3, rows, width]; 4 of Hunyuan-VL."""
    if rows[0].dim() == 1:
        return place(rows, width, left)
    return torch.stack([place([row[axis] for row in rows], width, left) for axis in range(len(rows[0]))])


def add_case(which, run, row, given, tensors, numbers, token):
    label = labels_of(row, token)
    with torch.no_grad():
        logits, last = run(row, [given])
    loss, count = loss_of([logits], [label])
    numbers["cases"][which] = {"loss": loss.item(), "n_label_tokens": count}
    for name, value in {"input_ids": torch.tensor(row), "attention_mask": torch.ones(len(row), dtype=torch.long), "labels": label,
                        "logits": logits, "last_hidden_state": last}.items():
        tensors[f"{which}/{name}"] = value[None].contiguous()
    tensors[f"{which}/position_ids"] = run.positions(row, [given]).unsqueeze(-2).contiguous()
    tensors.update({f"{which}/{name}": t for name, t in given.items()})


def add_video(config, run, tensors, numbers):
    """A text with a video: one whose steps in time stand apart, words between them; or of frames that are squares."""
    time, height, width = 4 if config.model_type == "ernie4_5_vl_moe" else 3, 2, 4
    token, squares = config.image_token_id, hasattr(config, "image_grid_pinpoints")
    if config.model_type in GEMMA4:
        token = config.video_token_id
        pixels, places = placed_patches(config.vision_config, time, height, width)
        given = {"pixel_values_videos": pixels, "video_position_ids": places, "num_frames_per_video": torch.tensor([time])}
    elif squares:
        token, side = config.video_token_id, config.vision_config.image_size
        given = {"pixel_values_videos": torch.randn(1, time, 3, side, side)}
    else:
        given = dict(zip(("pixel_values_videos", "video_grid_thw"), patches_of(config, time, height, width)))
    words = [t for t in torch.randint(3, config.text_config.vocab_size, (64,)).tolist() if t not in placeholders(config)]
    if config.model_type == "molmo2":
        given = molmo2.video(config)
    with torch.no_grad():
        made = tensors["vision/video_embeds"] = torch.cat(list(run.model.model.get_video_features(**given, return_dict=True).pooler_output))
    steps = 1 if squares else time
    row = words[:3]
    for step in range(steps):
        row += [token] * (len(made) // steps) + words[4 + 2 * step: 6 + 2 * step]
    if config.model_type == "ernie4_5_vl_moe":
        token = config.video_token_id
        row = [*words[:3], config.video_start_token_id, *[token] * len(made), config.video_end_token_id, *words[4:9]]
    if config.model_type == "molmo2":
        row = words[:3] + molmo2.tokens_of_video(config, given, words[4:]) + words[20:25]
    add_case("video", run, row, given, tensors, numbers, token)


def add_sounds(config, run, tensors, numbers):
    """A text with two sounds, frames of samples, the shorter one filled up."""
    words = [t for t in torch.randint(3, config.text_config.vocab_size, (64,)).tolist() if t not in placeholders(config)]
    if config.model_type == "gemma3n":
        given, rows = gemma3n.sounds(config, run.model)
        tensors["audio/audio_only/audio_embeds"] = rows.flatten(0, 1)
        stands = [config.audio_token_id] * rows.shape[1]
        row = words[:3] + stands + words[3:5] + stands + words[5:9]
        return add_case("audio_only", run, row, given, tensors, numbers, config.audio_token_id)
    token, frames = config.audio_token_id, (5, 3)
    mask = torch.arange(frames[0])[None] < torch.tensor(frames)[:, None]
    given = {"input_features": torch.randn(2, frames[0], config.audio_config.audio_embed_dim) * mask[..., None], "input_features_mask": mask}
    with torch.no_grad():
        tensors["audio/audio_only/audio_embeds"] = run.model.model.get_audio_features(**given, return_dict=True).pooler_output[mask]
    row = words[:3] + [token] * frames[0] + words[3:5] + [token] * frames[1] + words[5:9]
    add_case("audio_only", run, row, given, tensors, numbers, token)


# What transformers 5.24 reads of Llama 4's text and does not set.
transformers.modeling_outputs.MoeCausalLMOutputWithPast.image_outputs = None


def main():
    args, wanted, config, model = asked(__doc__, AutoModelForImageTextToText, random_weights,
                                          {"Keye": make_keye, "KeyeVL1_5": make_keye, "deepseek_vl_v2": DeepseekVl2, "dots_ocr": DotsOcr, "llavaonevision1_5": LlavaOneVision15, "minicpmv": MiniCpmV, "phi3_v": Phi3V, "sailvl": SailVl, "step_robotics": Step3VL})
    own_ovis = os.path.basename(os.path.normpath(args.folder)) in ("ovis_aimv2", "ovis_siglip")
    if own_ovis:
        as_own_ovis(model, wanted)
    if config.model_type == "mllama":
        mllama.open_gates(model)
    if config.model_type == "gemma3n":
        gemma3n.fill_towers(model, args.config)
    run = Run(model, config)
    rows, pictures, text = make_rows(config, model)
    tensors = {}
    numbers = {"name": wanted["model_type"], "seed": args.seed, "architecture": type(model).__name__, "transformers": transformers.__version__,
               "cases": {}, "grad": {}, "packed_lens": [len(row) for row in rows]}
    all_pictures = [p for own in pictures for p in own]
    with torch.no_grad():
        tensors["vision/image_embeds"] = torch.cat([features_of(model, p)[0] for p in all_pictures])
    made = [run(row, own) for row, own in zip(rows, pictures)]
    logits, last = [m[0] for m in made], [m[1] for m in made]
    labels = [labels_of(row, config.image_token_id) for row in rows]
    loss, count = loss_of(logits, labels)
    loss.backward()
    said = {"loss": loss.item(), "n_label_tokens": count}
    unreached = {n: torch.full_like(p, float("nan")) for n, p in model.named_parameters() if p.grad is None}
    fixed = {n for n, _ in model.named_buffers()}  # numbers beside the weights
    kimi_vl = os.path.basename(os.path.normpath(args.folder)) == "kimi_vl"
    grads = hub_names(on_disk(model, {n: unreached.get(n, p.grad) for n, p in model.named_parameters()}), kimi_vl)
    janus = os.path.basename(os.path.normpath(args.folder)) == "multi_modality"
    grads = janus_names(grads) if janus else grads
    own_llava = os.path.basename(os.path.normpath(args.folder)) == "llava_mistral"
    grads = renamed(grads, LLAVA_NAMES) if own_llava else grads
    own_got = os.path.basename(os.path.normpath(args.folder)) == "got_qwen"
    grads = got_names(grads) if own_got else grads
    grads = molmo2.hub_tables(grads, WORDS) if config.model_type == "molmo2" else grads
    own_ernie = os.path.basename(os.path.normpath(args.folder)) == "ernie4_5_moe_vl"
    grads = renamed(grads, ERNIE_NAMES) if own_ernie else grads
    if own_ovis:
        grads = {n: g for n, g in ovis_names(grads).items() if ".vision_model.head." not in n}
        if "own_tower" not in wanted:
            grads["visual_tokenizer.backbone.trunk.post_trunk_norm.weight"] = torch.tensor([float("nan")])
    norms = {n: None if n in fixed or n.endswith("correction_bias") or g.isnan().any() else g.norm().item() for n, g in sorted(grads.items())}
    numbers["grad"]["right"] = {"includes_router_aux_loss": False, "loss": loss.item(), "norms": norms}
    for name, norm in norms.items():
        if norm is not None and grads[name].numel() <= LARGEST_GRADIENT:
            tensors[f"grad/right/{name}"] = grads[name].float().contiguous()
    ids, detached, width = [torch.tensor(row) for row in rows], lambda list_: [x.detach() for x in list_], max(map(len, rows))
    for which in ("right", "left"):
        left = which == "left"
        mask = place([torch.ones_like(i) for i in ids], width, left)
        tensors[f"{which}/input_ids"], tensors[f"{which}/attention_mask"] = place(ids, width, left), mask
        tensors[f"{which}/labels"] = torch.where(mask > 0, place(labels, width, left), -100)
        tensors[f"{which}/position_ids"] = placed_positions([run.positions(*of) for of in zip(rows, pictures)], width, left)
        tensors[f"{which}/logits"] = place(detached(logits), width, left)
        tensors[f"{which}/last_hidden_state"] = place(detached(last), width, left)
        tensors.update({f"{which}/{name}": t.contiguous() for name, t in in_blocks(config, together(all_pictures)).items()})
    tensors["packed/input_ids"], tensors["packed/labels"] = torch.cat(ids)[None], torch.cat(labels)[None]
    tensors["packed/position_ids"] = torch.cat([run.positions(*of) for of in zip(rows, pictures)], -1).unsqueeze(-2).contiguous()
    tensors["packed/logits"], tensors["packed/last_hidden_state"] = torch.cat(detached(logits))[None], torch.cat(detached(last))[None]
    with torch.no_grad():
        out, hidden = run(text, [])
        text_label = labels_of(text, config.image_token_id)
        text_loss, text_count = loss_of([out], [text_label])
        for name, value in {"input_ids": torch.tensor(text), "attention_mask": torch.ones(len(text), dtype=torch.long), "labels": text_label,
                            "position_ids": torch.arange(len(text)), "logits": out, "last_hidden_state": hidden}.items():
            tensors[f"text/{name}"] = value[None].contiguous()
        numbers["cases"] = {"right": said, "left": said, "packed": said, "text": {"loss": text_loss.item(), "n_label_tokens": text_count}}
        if config.model_type.startswith("glm") or config.model_type in ("llava_onevision", "llava_next_video", "molmo2", "ernie4_5_vl_moe", *GEMMA4):
            add_video(config, run, tensors, numbers)
        if config.model_type in ("gemma3n", "gemma4_unified"):
            add_sounds(config, run, tensors, numbers)
        answers, margin = [list(row) for row in rows], float("inf")
        for _ in range(NEW_TOKENS):
            step = torch.stack([run(row, own)[0][-1] for row, own in zip(answers, pictures)])
            if set(step.argmax(-1).tolist()) & placeholders(config):
                margin = 0  # it would be a picture's
            best = step.topk(2, -1)
            margin = min(margin, (best.values[:, 0] - best.values[:, 1]).min().item())
            for row, token in zip(answers, best.indices[:, 0].tolist()):
                row.append(token)
    new = [row[-NEW_TOKENS:] for row in answers]
    tensors["gen/new_ids"] = torch.tensor(new)
    numbers["gen"] = {"min_top2_margin": margin, "distinct_tokens_min": min(len(set(row)) for row in new), "prompt_case": "left"}
    spread = tensors["right/logits"].std().item()
    print(f"{type(model).__name__}: {sum(p.numel() for p in model.parameters())} parameters, logits of spread {spread:.3g}, "
          f"nearest tie {margin:.3g}, {numbers['gen']['distinct_tokens_min']} different tokens of {NEW_TOKENS}")
    if margin < 2e-3 or numbers["gen"]["distinct_tokens_min"] < 3 or not 0.05 < spread < 30 or not torch.isfinite(tensors["right/logits"]).all():
        raise SystemExit("Not kept: a tie is too near, the answers are one word, or the logits are too small or too large; another --seed, or other sizes")
    shutil.rmtree(args.folder, ignore_errors=True)
    os.makedirs(args.folder)
    checkpoint = os.path.join(args.folder, "checkpoint")
    model.to(torch.bfloat16).save_pretrained(checkpoint, safe_serialization=True)
    if own_ovis:
        write_as_ovis(checkpoint, model, wanted)
    if own_llava:
        write_as_own_llava(checkpoint)
    if own_got:
        write_as_own_got(checkpoint)
    if own_ernie:
        write_as_own_ernie(checkpoint)
    for name, t in tensors.items() if own_ovis or own_llava else ():
        if name.endswith("input_ids"):
            tensors[name] = torch.where(t == config.image_token_id, -200 if own_llava else -300, t)
    if janus:
        write_as_janus(checkpoint, model)
    if config.model_type == "molmo2":
        weights = os.path.join(checkpoint, "model.safetensors")
        save_file(molmo2.hub_tables(load_file(weights), WORDS), weights, {"format": "pt"})
    if config.model_type == "unlimited_ocr":
        write_as_deepseek_ocr(checkpoint, config)
    if kimi_vl:
        write_as_kimi_vl(checkpoint)
    elif config.model_type in ("kimi_k25", "qianfan_ocr"):
        save_as_hub(checkpoint)
    if os.path.exists(os.path.join(checkpoint, "generation_config.json")):
        os.remove(os.path.join(checkpoint, "generation_config.json"))
    save_file(tensors, os.path.join(args.folder, "golden.safetensors"))
    with open(os.path.join(args.folder, "golden.json"), "w", encoding="utf-8") as file:
        json.dump(numbers, file, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
