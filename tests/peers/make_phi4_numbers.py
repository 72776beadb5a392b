# SPDX-License-Identifier: Apache-2.0
"""The numbers of Phi-4-multimodal: tiny checkpoints of random weights and what transformers computes with them, as the tests read them.

  make_phi4_numbers.py tests/data/models [--seed N]

Written are phi4_multimodal/ and, the same model in its authors' own words, phi4mm/. One text has a picture, one a picture and a sound, one
sounds alone. transformers lets sounds of a batch see what fills up the shorter ones: here they are as long as each other. Weights are
rounded to bfloat16, and all is computed in float32, each row for itself."""
import argparse
import json
import os
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import Phi4MultimodalConfig, Phi4MultimodalForCausalLM

from make_numbers import loss_of, on_disk, place
from random_weights import random_weights

IMAGE, SOUND, WORDS, SIDE, PATCH, BANDS = 150, 151, 160, 24, 4, 10
NEW_TOKENS, LARGEST_GRADIENT = 12, 600
EYES, EARS = "model.embed_tokens_extend.image_embed.", "model.embed_tokens_extend.audio_embed."
VISION = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": SIDE, "crop_size": SIDE,
          "patch_size": PATCH, "image_token_id": IMAGE}
AUDIO = {"hidden_size": 16, "intermediate_size": 24, "num_blocks": 2, "num_attention_heads": 2, "input_size": BANDS, "ext_pw_out_channel": 16,
         "depthwise_separable_out_channel": 16, "nemo_conv_channels": 4, "bias_max_distance": 3, "audio_token_id": SOUND}
TEXT = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 8192, "original_max_position_embeddings": 4096, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
        "pad_token_id": 0, "rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
                                               "short_factor": [1.0, 1.25], "long_factor": [1.5, 4.0]}}
# Of each picture its lines and columns of squares, and the lines and columns of patches at the edges that are filling.
PICTURES = ((1, 2, 0, 3), (2, 1, 1, 2))


def picture(number):
    high, wide, below, right = PICTURES[number]
    side = SIDE // PATCH
    mask = torch.ones(high * side, wide * side)
    mask[high * side - below:], mask[:, wide * side - right:] = 0, 0
    mask = mask.reshape(high, side, wide, side).transpose(1, 2).reshape(1, -1, side, side)
    return {"image_pixel_values": torch.randn(1, 1 + high * wide, 3, SIDE, SIDE), "image_sizes": torch.tensor([[high * SIDE, wide * SIDE]]),
            "image_attention_mask": torch.cat([torch.ones(1, 1, side, side), mask], 1)}


def seen_size(number):
    high, wide, below, right = PICTURES[number]
    return [high * SIDE - below * PATCH, wide * SIDE - right * PATCH]


def sounds(count, frames):
    rows = -(-frames // 8)
    return {"audio_input_features": torch.randn(count, frames, BANDS), "audio_embed_sizes": torch.tensor([rows] * count)}


def run(model, row, given):
    last = []
    hook = model.lm_head.register_forward_pre_hook(lambda m, args: last.append(args[0]))
    out = model(input_ids=torch.tensor([row]), attention_mask=torch.ones(1, len(row), dtype=torch.long), use_cache=False, **given)
    hook.remove()
    return out.logits[0], last[0][0]


def rows_of_picture(model, given):
    """What stands for a picture, as the model puts it in: its rows are told by where its token is."""
    count = 600
    made = []
    hook = model.model.embed_tokens_extend.image_embed.img_projection_down.register_forward_hook(lambda m, args, out: made.append(out[0]))
    try:
        model(input_ids=torch.tensor([[IMAGE] * count]), use_cache=False, **given)
    except (RuntimeError, IndexError):
        pass
    hook.remove()
    return made[0]


def rows_of_sounds(model, features):
    ears = model.model.embed_tokens_extend.audio_embed
    return ears.down_proj_for_speech(torch.nn.functional.gelu(ears.up_proj_for_speech(ears.encoder(features, None))))


def labels_of(row):
    return torch.tensor([-100 if i < len(row) // 3 or t in (IMAGE, SOUND) else t for i, t in enumerate(row)])


def as_files(given, numbers):
    """Under the names in which the tests keep media."""
    out = {}
    if "image_pixel_values" in given:
        out = {"pixel_values": given["image_pixel_values"], "image_sizes": torch.tensor([seen_size(n) for n in numbers])}
    if "audio_input_features" in given:
        features = given["audio_input_features"]
        out.update({"input_features": features, "input_features_mask": torch.ones(features.shape[:2], dtype=torch.bool)})
    return out


def own_name(name):
    """Of its authors' files."""
    for new, old in (("img_projection_up", "img_projection.0"), ("img_projection_down", "img_projection.2"), ("global_img_feature_extensor", "glb_GN"),
                     ("sub_img_feature_extensor", "sub_GN"), ("up_proj_for_speech", "audio_projection.speech.0"),
                     ("down_proj_for_speech", "audio_projection.speech.2"), ("up_proj_for_vision_speech", "audio_projection.vision.0"),
                     ("down_proj_for_vision_speech", "audio_projection.vision.2")):
        name = name.replace(new, old)
    if ".encoders." in name:
        name = name.replace("gate_up_proj", "net.0.linear").replace(".down_proj", ".net.2").replace("o_proj", "linear_out")
        for each in "qkv":
            name = name.replace(f"{each}_proj", f"linear_{each}")
    if name.startswith("model.layers.") and "proj." in name:
        name = name.replace("proj.", "proj.base_layer.")
    return name


def own_config(said):
    audio = said["audio_config"]
    text = {k: said[k] for k in TEXT if k != "rope_parameters"}
    rope = dict(said["rope_parameters"])
    bias = {"t5_bias_max_distance": audio["bias_max_distance"], "type": "t5"}
    conformer = {"attention_dim": audio["hidden_size"], "attention_heads": audio["num_attention_heads"], "linear_units": audio["intermediate_size"],
                 "num_blocks": audio["num_blocks"], "input_size": audio["input_size"], "ext_pw_out_channel": audio["ext_pw_out_channel"],
                 "depthwise_seperable_out_channel": audio["depthwise_separable_out_channel"], "nemo_conv_settings": {"conv_channels": audio["nemo_conv_channels"]},
                 "relative_attention_bias_args": bias, "input_layer": "nemo_conv", "causal": True, "bias_in_glu": True, "batch_norm": False,
                 "ext_pw_kernel_size": 1, "chunk_size": -1, "left_chunk": 18, "kernel_size": 3, "time_reduction": 8, "activation": "swish",
                 "conv_activation": "swish", "conv_glu_type": "swish", "audio_token_id": SOUND}
    eyes = {"crop_size": SIDE, "hd_transform_order": "sub_glb", "image_token_compression_cls": "avg_pool_2d", "projection_cls": "mlp",
            "use_hd_transform": True, "with_learnable_separator": True}
    return {**text, "model_type": "phi4mm", "architectures": ["Phi4MMForCausalLM"], "torch_dtype": "bfloat16", "hidden_act": "silu", "rms_norm_eps": 1e-5,
            "rope_theta": rope["rope_theta"], "partial_rotary_factor": rope["partial_rotary_factor"],
            "rope_scaling": {"type": "longrope", "short_factor": rope["short_factor"], "long_factor": rope["long_factor"]},
            "sliding_window": 262144, "audio_processor": {"name": "cascades", "config": conformer}, "vision_config": {**VISION, "model_type": "siglip_vision_model"},
            "embd_layer": {"embedding_cls": "image_audio", "image_embd_layer": eyes,
                           "audio_embd_layer": {"downsample_rate": 1, "projection_cls": "mlp", "use_qformer": False, "use_conv_downsample": False}}}


def write(folder, name, numbers, tensors, rename):
    """golden.json and golden.safetensors, gradients under the files' names."""
    path = os.path.join(folder, name)
    numbers = {**numbers, "name": name, "grad": {"right": {**numbers["grad"]["right"], "norms": {rename(n): v for n, v in numbers["grad"]["right"]["norms"].items()}}}}
    begin = "grad/right/"
    save_file({begin + rename(n[len(begin):]) if n.startswith(begin) else n: t.contiguous() for n, t in tensors.items()}, os.path.join(path, "golden.safetensors"))
    with open(os.path.join(path, "golden.json"), "w", encoding="utf-8") as file:
        json.dump(numbers, file, indent=1, sort_keys=True)


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder")
    ask.add_argument("--seed", type=int, default=7)
    args = ask.parse_args()
    torch.manual_seed(args.seed)
    config = Phi4MultimodalConfig(**TEXT, vision_config=VISION, audio_config=AUDIO)
    model = Phi4MultimodalForCausalLM._from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    random_weights(model)
    with torch.no_grad():
        ears = model.model.embed_tokens_extend.audio_embed.encoder.encoder_embedding
        ears.global_mean.copy_(torch.randn(BANDS).to(torch.bfloat16).float())
        ears.global_invstd.copy_((1 + 0.3 * torch.randn(BANDS)).to(torch.bfloat16).float())
    words = lambda n: torch.randint(3, 140, (n,)).tolist()
    first, both, alone = picture(0), {**picture(1), **sounds(1, 20)}, sounds(2, 37)
    tensors = {}
    with torch.no_grad():
        seen = [rows_of_picture(model, {k: v for k, v in given.items() if k.startswith("image")}) for given in (first, both)]
        tensors["vision/image_embeds"] = torch.cat(seen)
        tensors["audio/audio_only/audio_embeds"] = rows_of_sounds(model, alone["audio_input_features"]).flatten(0, 1)
        # Of one that is cut: some of its rows, where its numbers are those of a formula.
        frames, bands = torch.meshgrid(torch.arange(4100, dtype=torch.float64), torch.arange(BANDS, dtype=torch.float64), indexing="ij")
        kept = [0, 250, 499, 500, 512]
        tensors["long/audio_embeds"], tensors["long/rows"] = rows_of_sounds(model, torch.sin(0.013 * frames + bands).float()[None])[0, kept], torch.tensor(kept)
    rows = [words(3) + [IMAGE] * len(seen[0]) + words(6), words(2) + [IMAGE] * len(seen[1]) + words(4) + [SOUND] * 3 + words(5)]
    givens = [first, both]
    made = [run(model, row, given) for row, given in zip(rows, givens)]
    logits, last, labels = [m[0] for m in made], [m[1] for m in made], [labels_of(row) for row in rows]
    loss, count = loss_of(logits, labels)
    loss.backward()
    said = {"loss": loss.item(), "n_label_tokens": count}
    unreached = {n: torch.full_like(p, float("nan")) if p.grad is None else p.grad for n, p in model.named_parameters()}
    grads = {n: g for n, g in on_disk(model, unreached).items() if ".head." not in n}
    fixed = {n for n, _ in model.named_buffers()}
    norms = {n: None if n in fixed or g.isnan().any() else g.norm().item() for n, g in sorted(grads.items())}
    tensors.update({f"grad/right/{n}": grads[n].float() for n, norm in norms.items() if norm is not None and grads[n].numel() <= LARGEST_GRADIENT})
    ids, detached, width = [torch.tensor(row) for row in rows], lambda list_: [x.detach() for x in list_], max(map(len, rows))
    most = max(given["image_pixel_values"].shape[1] for given in givens)
    pixels = torch.cat([torch.nn.functional.pad(g["image_pixel_values"], (0, 0) * 3 + (0, most - g["image_pixel_values"].shape[1])) for g in givens])
    for which in ("right", "left"):
        mask = place([torch.ones_like(i) for i in ids], width, which == "left")
        tensors.update({f"{which}/input_ids": place(ids, width, which == "left"), f"{which}/attention_mask": mask,
                        f"{which}/labels": torch.where(mask > 0, place(labels, width, which == "left"), -100),
                        f"{which}/position_ids": place([torch.arange(len(i)) for i in ids], width, which == "left"),
                        f"{which}/logits": place(detached(logits), width, which == "left"),
                        f"{which}/last_hidden_state": place(detached(last), width, which == "left")})
        tensors.update({f"{which}/{n}": t.clone() for n, t in as_files({"image_pixel_values": pixels, "audio_input_features": both["audio_input_features"]}, (0, 1)).items()})
    tensors["packed/input_ids"], tensors["packed/labels"] = torch.cat(ids)[None], torch.cat(labels)[None]
    tensors["packed/position_ids"] = torch.cat([torch.arange(len(i)) for i in ids])[None]
    tensors["packed/logits"], tensors["packed/last_hidden_state"] = torch.cat(detached(logits))[None], torch.cat(detached(last))[None]
    numbers = {"seed": args.seed, "architecture": type(model).__name__, "transformers": transformers.__version__, "packed_lens": [len(row) for row in rows],
               "grad": {"right": {"includes_router_aux_loss": False, "loss": loss.item(), "norms": norms}}, "cases": {"right": said, "left": said, "packed": said}}
    with torch.no_grad():
        for which, row, given in (("text", words(10), {}), ("audio_only", words(3) + [SOUND] * 5 + words(2) + [SOUND] * 5 + words(4), alone)):
            out, hidden = run(model, row, given)
            label = labels_of(row)
            own_loss, own_count = loss_of([out], [label])
            numbers["cases"][which] = {"loss": own_loss.item(), "n_label_tokens": own_count}
            for name, value in {"input_ids": torch.tensor(row), "attention_mask": torch.ones(len(row), dtype=torch.long), "labels": label,
                                "position_ids": torch.arange(len(row)), "logits": out, "last_hidden_state": hidden}.items():
                tensors[f"{which}/{name}"] = value[None]
            tensors.update({f"{which}/{n}": t for n, t in as_files(given, ()).items()})
        answers, margin = [list(row) for row in rows], float("inf")
        for _ in range(NEW_TOKENS):
            step = torch.stack([run(model, row, given)[0][-1] for row, given in zip(answers, givens)])
            if set(step.argmax(-1).tolist()) & {IMAGE, SOUND}:
                margin = 0  # it would be a medium's
            best = step.topk(2, -1)
            margin = min(margin, (best.values[:, 0] - best.values[:, 1]).min().item())
            for row, token in zip(answers, best.indices[:, 0].tolist()):
                row.append(token)
    new = [row[-NEW_TOKENS:] for row in answers]
    tensors["gen/new_ids"] = torch.tensor(new)
    numbers["gen"] = {"min_top2_margin": margin, "distinct_tokens_min": min(len(set(row)) for row in new), "prompt_case": "left"}
    spread = tensors["right/logits"].std().item()
    print(f"{sum(p.numel() for p in model.parameters())} parameters, logits of spread {spread:.3g}, nearest tie {margin:.3g}, "
          f"{numbers['gen']['distinct_tokens_min']} different tokens of {NEW_TOKENS}")
    if margin < 2e-3 or numbers["gen"]["distinct_tokens_min"] < 3 or not 0.05 < spread < 30:
        raise SystemExit("Not kept: a tie is too near, the answers are one word, or the logits are too small or too large; another --seed, or other sizes")
    native, own = (os.path.join(args.folder, name, "checkpoint") for name in ("phi4_multimodal", "phi4mm"))
    for folder in (native, own):
        shutil.rmtree(os.path.dirname(folder), ignore_errors=True)
        os.makedirs(folder)
    model.to(torch.bfloat16).save_pretrained(native, safe_serialization=True)
    if os.path.exists(os.path.join(native, "generation_config.json")):
        os.remove(os.path.join(native, "generation_config.json"))
    weights = {own_name(n): t for n, t in load_file(os.path.join(native, "model.safetensors")).items()}
    for layer in ("self_attn.o_proj", "mlp.down_proj"):  # adapters beside the matrices
        for which in ("vision", "speech"):
            for side in "AB":
                weights[f"model.layers.0.{layer}.lora_{side}.{which}.weight"] = torch.zeros(2, 2).to(torch.bfloat16)
    save_file(weights, os.path.join(own, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(own, "config.json"), "w", encoding="utf-8") as file:
        json.dump(own_config(json.load(open(os.path.join(native, "config.json"), encoding="utf-8"))), file, indent=2, sort_keys=True)
    write(args.folder, "phi4_multimodal", numbers, tensors, lambda n: n)
    write(args.folder, "phi4mm", numbers, tensors, own_name)


if __name__ == "__main__":
    main()
