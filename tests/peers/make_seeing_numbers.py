# SPDX-License-Identifier: Apache-2.0
"""The numbers of a family that sees: a tiny checkpoint of random weights and what transformers computes with it, as the tests read them.

  make_seeing_numbers.py CONFIG.json tests/data/models/NAME [--seed N]

CONFIG.json is a config.json with small sizes: a text part of two layers and some 160 words, a tower of two or three. Kimi-VL, which
transformers does not know, is given as kimi_k25, which sees pictures as it does, and NAME is kimi_vl. Written are
checkpoint/, golden.json and golden.safetensors. Weights are rounded to bfloat16, and all is computed in float32, each row for itself."""
import json
import os
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

from make_numbers import asked, loss_of, on_disk, place

NEW_TOKENS = 12
LARGEST_GRADIENT = 600  # numbers in a gradient that is kept whole; of larger ones the norm is kept
# Of each row the words before, between and behind its pictures.
ROWS = ((3, 2, 5), (4, 6))
# Height and width of the pictures in patches, or of what they were before they became tiles in pixels.
SIZES = ((4, 6), (2, 4), (6, 4))


def random_weights(model):
    """Rows keep the size of what they read; norms and biases differ from what a missing one would mean."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1 and "position" not in name:
                p.copy_(torch.randn_like(p) * 0.9 / (p[0].numel() if p.dim() > 2 else p.shape[-1]) ** 0.5)
            elif "norm" in name and name.endswith("weight") and p.mean().abs() > 0.5:
                p.copy_(1 + 0.2 * torch.randn_like(p))
            else:
                p.copy_((0.1 if p.dim() == 1 else 0.5) * torch.randn_like(p))
        for name, b in model.named_buffers():  # of Gemma 4
            if name.endswith(("_min", "_max")):
                b.copy_(torch.tensor(1.5 if name.endswith("max") else -1.25))
            if name.endswith(("layer_scalar", "std_scale")):
                b.copy_((0.9 + 0.1 * torch.randn_like(b)).to(torch.bfloat16).float())
            if name.endswith("std_bias"):
                b.copy_(torch.randn_like(b).to(torch.bfloat16).float())
        for p in model.parameters():
            p.copy_(p.to(torch.bfloat16).float())


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
    if hasattr(vision, "temporal_patch_size"):
        return torch.randn(count, vision.in_channels * vision.temporal_patch_size * side ** 2), grid
    return torch.randn(count, 3, side, side), grid  # line after line


# transformers 5.24 writes some tensors of Kimi and Qianfan-OCR under names that no other program reads; those of their files.
HUB_NAMES = {"language_model.model.encoder.layers.": "language_model.model.layers.",
             "language_model.model.blocks.": "language_model.model.layers.", "vision_tower.encoder.patch_embed.": "vision_tower.patch_embed.",
             "model.mm_projector.pre_norm": "multi_modal_projector.pre_norm", "mm_projector.pre_norm": "multi_modal_projector.pre_norm",
             "mm_projector.proj.0": "multi_modal_projector.linear_1", "mm_projector.proj.2": "multi_modal_projector.linear_2"}


def hub_names(tensors):
    renamed = lambda name: next((new + name[len(old):] for old, new in HUB_NAMES.items() if name.startswith(old)), name)
    return {renamed(name): t for name, t in tensors.items()}


def write_as_kimi_vl(checkpoint):
    """What transformers wrote of kimi_k25, in the words of Kimi-VL's files."""
    weights, path = os.path.join(checkpoint, "model.safetensors"), os.path.join(checkpoint, "config.json")
    save_file(hub_names(load_file(weights)), weights, {"format": "pt"})
    said = json.load(open(path, encoding="utf-8"))
    vision = said["vision_config"]
    taken = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "patch_size", "merge_kernel_size")
    said = {"architectures": ["KimiVLForConditionalGeneration"], "model_type": "kimi_vl", "media_placeholder_token_id": said["image_token_id"],
            "text_config": said["text_config"], "torch_dtype": "bfloat16", "vocab_size": said["text_config"]["vocab_size"],
            "vision_config": {"model_type": "moonvit", "init_pos_emb_height": vision["pos_emb_height"],
                              "init_pos_emb_width": vision["pos_emb_width"], **{name: vision[name] for name in taken}}}
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
    pixels, places = torch.zeros(count, 24, 3 * vision.patch_size ** 2), torch.full((count, 24, 2), -1)
    pixels[:, :height * width] = torch.rand(count, height * width, pixels.shape[2])
    places[:, :height * width] = torch.tensor([(x, y) for y in range(height) for x in range(width)])
    return pixels, places


def pictures_of(config, number):
    """What a processor makes of one picture, under the names of the model's arguments."""
    vision, size = config.vision_config, SIZES[number]
    if config.model_type == "gemma4":
        return dict(zip(("pixel_values", "image_position_ids"), placed_patches(vision, 1, *size)))
    if config.model_type == "lfm2_vl":  # filled up to 24 patches
        pixels, (height, width) = torch.zeros(1, 24, 3 * vision.patch_size ** 2), size
        pixels[:, :height * width] = torch.randn(height * width, pixels.shape[2])
        mask = (torch.arange(24) < height * width).int()
        return {"pixel_values": pixels, "spatial_shapes": torch.tensor([size]), "pixel_attention_mask": mask[None]}
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
    for name in parts[0] if parts else ():
        rest = [max(p[name].shape[d] for p in parts) for d in range(1, parts[0][name].dim())]
        out[name] = torch.cat([torch.nn.functional.pad(p[name], [x for d in range(p[name].dim() - 1, 0, -1)
                                                                  for x in (0, rest[d - 1] - p[name].shape[d])]) for p in parts])
    return out


def as_arguments(model, given):
    """Of MiniCPM-V: patches side by side in one strip, and sizes without time."""
    if "image_grid_thw" not in given or model.config.model_type != "minicpmv4_6":
        return given
    patches = given["pixel_values"]
    strip = patches.permute(1, 2, 0, 3).reshape(1, patches.shape[1], patches.shape[2], -1)
    return {"pixel_values": strip, "target_sizes": given["image_grid_thw"][:, 1:].int()}


def features_of(model, pictures):
    made = model.model.get_image_features(**as_arguments(model, pictures), return_dict=True).pooler_output
    return list(made)


class Run:
    def __init__(self, model, config):
        self.model, self.config, self.token = model, config, config.image_token_id
        self.whole = config.model_type == "gemma3"
        self.placed = has_grids(config) and hasattr(model.model, "get_rope_index") and config.model_type != "exaone4_5"

    def kinds_of(self, row, given):
        """Of each token: 0 words, 1 pictures, 2 videos, which have the pictures' token."""
        return (torch.tensor([row]) == self.token).int() * (2 if "video_grid_thw" in given else 1)

    def positions(self, row, pictures):
        """[tokens], or [3, tokens] of time, height and width."""
        given = {name: t for name, t in together(pictures).items() if "grid" in name}
        if not self.placed or not given:
            return torch.arange(len(row)).expand(3, -1) if self.placed else torch.arange(len(row))
        return self.model.model.get_rope_index(torch.tensor([row]), self.kinds_of(row, given), **given)[0][:, 0]

    def __call__(self, row, pictures):
        given = together(pictures)
        if self.whole:
            given["token_type_ids"] = (torch.tensor([row]) == self.token).int()
        if getattr(self.config.text_config, "use_bidirectional_attention", None) == "vision":
            video = torch.tensor([row]) == self.config.video_token_id
            given["mm_token_type_ids"] = (torch.tensor([row]) == self.token).int() + 2 * video.int()
        if self.placed and given:
            given["mm_token_type_ids"] = self.kinds_of(row, given)
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
    return {config.image_token_id, getattr(config, "video_token_id", config.image_token_id)}


def labels_of(row, token):
    """The first third of a row and its pictures are not learnt."""
    return torch.tensor([-100 if i < len(row) // 3 or t == token else t for i, t in enumerate(row)])


def make_rows(config, model):
    """Ids of the rows with as many tokens of a picture as the model makes of it, and the pictures of each."""
    words = lambda n: [t for t in torch.randint(3, config.text_config.vocab_size, (4 * n,)).tolist() if t not in placeholders(config)][:n]
    rows, pictures, number = [], [], 0
    for lengths in ((0, 8), (0, 6)) if config.model_type == "paligemma" else ROWS:  # its pictures stand before all words
        row, own = words(lengths[0]), []
        for length in lengths[1:]:
            own.append(pictures_of(config, number))
            number += 1
            with torch.no_grad():
                row += [config.image_token_id] * len(features_of(model, own[-1])[0]) + words(length)
        rows.append(row)
        pictures.append(own)
    return rows, pictures, words(10)


def placed_positions(rows, width, left):
    """[rows, width], or [3, rows, width]."""
    if rows[0].dim() == 1:
        return place(rows, width, left)
    return torch.stack([place([row[axis] for row in rows], width, left) for axis in range(3)])


def add_video(config, run, tensors, numbers):
    """A text with a video: one whose steps in time stand apart, words between them; or of frames that are squares."""
    time, height, width = 3, 2, 4
    token, squares = config.image_token_id, hasattr(config, "image_grid_pinpoints")
    if config.model_type == "gemma4":
        token = config.video_token_id
        pixels, places = placed_patches(config.vision_config, time, height, width)
        given = {"pixel_values_videos": pixels, "video_position_ids": places, "num_frames_per_video": torch.tensor([time])}
    elif squares:
        token, side = config.video_token_id, config.vision_config.image_size
        given = {"pixel_values_videos": torch.randn(1, time, 3, side, side)}
    else:
        given = dict(zip(("pixel_values_videos", "video_grid_thw"), patches_of(config, time, height, width)))
    words = [t for t in torch.randint(3, config.text_config.vocab_size, (64,)).tolist() if t not in placeholders(config)]
    with torch.no_grad():
        made = tensors["vision/video_embeds"] = torch.cat(list(run.model.model.get_video_features(**given, return_dict=True).pooler_output))
    steps = 1 if squares else time
    row = words[:3]
    for step in range(steps):
        row += [token] * (len(made) // steps) + words[4 + 2 * step: 6 + 2 * step]
    label = labels_of(row, token)
    with torch.no_grad():
        logits, last = run(row, [given])
    loss, count = loss_of([logits], [label])
    numbers["cases"]["video"] = {"loss": loss.item(), "n_label_tokens": count}
    for name, value in {"input_ids": torch.tensor(row), "attention_mask": torch.ones(len(row), dtype=torch.long), "labels": label,
                        "logits": logits, "last_hidden_state": last}.items():
        tensors[f"video/{name}"] = value[None].contiguous()
    tensors["video/position_ids"] = run.positions(row, [given]).unsqueeze(-2).contiguous()
    tensors.update({f"video/{name}": t for name, t in given.items()})


def main():
    args, wanted, config, model = asked(__doc__, AutoModelForImageTextToText, random_weights)
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
    grads = hub_names(on_disk(model, {n: unreached.get(n, p.grad) for n, p in model.named_parameters()}))
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
        if config.model_type.startswith("glm") or config.model_type in ("llava_onevision", "gemma4"):
            add_video(config, run, tensors, numbers)
        answers, margin = [list(row) for row in rows], float("inf")
        for _ in range(NEW_TOKENS):
            step = torch.stack([run(row, own)[0][-1] for row, own in zip(answers, pictures)])
            step[:, [t for t in placeholders(config) if t < step.shape[1]]] = float("-inf")  # it would be a picture's
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
    if config.model_type == "kimi_k25":
        write_as_kimi_vl(checkpoint)
    if config.model_type == "qianfan_ocr":
        weights = os.path.join(checkpoint, "model.safetensors")
        save_file(hub_names(load_file(weights)), weights, {"format": "pt"})
    if os.path.exists(os.path.join(checkpoint, "generation_config.json")):
        os.remove(os.path.join(checkpoint, "generation_config.json"))
    save_file(tensors, os.path.join(args.folder, "golden.safetensors"))
    with open(os.path.join(args.folder, "golden.json"), "w", encoding="utf-8") as file:
        json.dump(numbers, file, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
