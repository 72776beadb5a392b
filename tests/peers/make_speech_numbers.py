# SPDX-License-Identifier: Apache-2.0
"""The numbers of a model that speaks: a tiny checkpoint of random weights, and what transformers' Qwen3-Omni says with it.

  make_speech_numbers.py tests/data/models/qwen3_omni_moe_thinker/checkpoint/config.json tests/data/speech/qwen3_omni_moe [--seed N]

The thinker's settings are those of the given file. Written are checkpoint/, golden.json (tokens and pictures of two chats) and
golden.safetensors (the frames of codes, all drawn greedily, and their sound). Weights are rounded to bfloat16, all is computed in
float32."""
import argparse
import json
import pathlib

import torch
from random_weights import random_weights
from safetensors.torch import save_file
from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration

MARKS = 1024  # at the end of the talker's words, of which only one is ever said
CODES, BOOKS = 64, 4
FRAMES = 9
TURN, USER, ASSISTANT, LINE, END = 381, 380, 379, 378, 377
BEGIN_TEXT, END_TEXT, NO_TEXT = 374, 375, 376
ROPE = {"rope_type": "default", "mrope_section": [4, 2, 2], "mrope_interleaved": True}


def speaking(thinker):
    layers = {"hidden_size": 48, "num_attention_heads": 4, "head_dim": 16, "rms_norm_eps": 1e-6}
    talker = {
        "accept_hidden_layer": 2, "num_code_groups": BOOKS, "thinker_hidden_size": thinker["text_config"]["hidden_size"],
        "codec_pad_id": CODES + 1, "codec_bos_id": CODES + 2, "codec_eos_token_id": CODES + 3, "codec_nothink_id": CODES + 4,
        "codec_think_bos_id": CODES + 5, "codec_think_eos_id": CODES + 6, "speaker_id": {"ethan": CODES + 7, "chelsie": CODES + 8},
        "position_id_per_seconds": 13, "image_token_id": thinker["image_token_id"], "video_token_id": thinker["video_token_id"],
        "audio_token_id": thinker["audio_token_id"], "vision_start_token_id": thinker["vision_start_token_id"],
        "audio_start_token_id": thinker["audio_start_token_id"], "spatial_merge_size": 2,
        "text_config": {**layers, "vocab_size": CODES + MARKS, "num_hidden_layers": 2, "num_key_value_heads": 2, "intermediate_size": 40,
                        "moe_intermediate_size": 24, "shared_expert_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2,
                        "norm_topk_prob": True, "rope_scaling": ROPE, "rope_theta": 1e6, "max_position_embeddings": 4096},
        "code_predictor_config": {**layers, "vocab_size": CODES, "num_hidden_layers": 2, "num_key_value_heads": 2, "intermediate_size": 56,
                                  "num_code_groups": BOOKS, "rope_theta": 1e6, "max_position_embeddings": 4096}}
    wave = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 2, "intermediate_size": 48,
            "sliding_window": 5, "codebook_size": CODES, "num_quantizers": BOOKS, "upsample_rates": [3, 2], "upsampling_ratios": [2, 2],
            "decoder_dim": 24, "rms_norm_eps": 1e-5}
    return {"model_type": "qwen3_omni_moe", "architectures": ["Qwen3OmniMoeForConditionalGeneration"], "enable_audio_output": True,
            "thinker_config": thinker, "talker_config": talker, "code2wav_config": wave, "im_start_token_id": TURN,
            "im_end_token_id": END, "user_token_id": USER, "assistant_token_id": ASSISTANT, "system_token_id": 373,
            "tts_bos_token_id": BEGIN_TEXT, "tts_eos_token_id": END_TEXT, "tts_pad_token_id": NO_TEXT}


def chats(config):
    """Each a prompt, and the picture in it if there is one: its grid."""
    thinker = config["thinker_config"]
    system, user = [TURN, 373, LINE, 20, 21, END, LINE], [TURN, USER, LINE]
    answer = [TURN, ASSISTANT, LINE]
    picture = [thinker["vision_start_token_id"]] + [thinker["image_token_id"]] * 6 + [thinker["vision_end_token_id"]]
    yield system + user + [30, 31, 32, END, LINE, TURN, ASSISTANT, LINE, 40, 41, END, LINE] + user + [33, END, LINE] + answer, None
    yield user + [50] + picture + [51, END, LINE] + answer, (1, 4, 6)


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("config")
    ask.add_argument("folder", type=pathlib.Path)
    ask.add_argument("--seed", type=int, default=7)
    args = ask.parse_args()
    folder = args.folder
    torch.manual_seed(args.seed)
    thinker = json.load(open(args.config))["thinker_config"]
    config = speaking(thinker)
    model = Qwen3OmniMoeForConditionalGeneration(Qwen3OmniMoeConfig(**{k: v for k, v in config.items() if k != "model_type"})).eval().float()
    random_weights(model)
    with torch.no_grad():  # a sound that is seldom cut off
        model.code2wav.decoder[-1].conv.weight.mul_(0.25)
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(checkpoint)
    model = model.float()
    golden, tensors = [], {}
    for i, (prompt, grid) in enumerate(chats(config)):
        given = {}
        if grid:
            vision = config["thinker_config"]["vision_config"]
            pixels = torch.randn(grid[0] * grid[1] * grid[2], 3 * vision["temporal_patch_size"] * vision["patch_size"] ** 2)
            given = {"pixel_values": pixels, "image_grid_thw": torch.tensor([grid])}
            tensors[f"{i}.pixel_values"] = pixels
        seen = []
        hook = model.code2wav.pre_transformer.register_forward_hook(lambda m, a, out: seen.append(out))
        codes = []
        decode = model.code2wav.chunked_decode
        model.code2wav.chunked_decode = lambda code, **how: codes.append(code) or decode(code, chunk_size=4, left_context_size=2)
        ids = torch.tensor([prompt])
        tokens, wave = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), speaker="Ethan", thinker_max_new_tokens=7,
                                      thinker_do_sample=False, talker_do_sample=False, talker_max_new_tokens=FRAMES + 1,
                                      talker_repetition_penalty=1.05, return_audio=True, thinker_eos_token_id=END, **given)
        model.code2wav.chunked_decode = decode
        hook.remove()
        golden.append({"prompt": prompt, "tokens": tokens[0].tolist(), "grid": grid, "voice": "Ethan"})
        tensors[f"{i}.codes"] = codes[0][0].T.contiguous()  # [frames, codes]
        tensors[f"{i}.sound"] = wave.flatten()
        tensors[f"{i}.whole"] = decode(codes[0]).flatten()
        print(len(prompt), "tokens, answered", len(tokens[0]) - len(prompt), "frames", codes[0].shape, "samples", wave.numel(), wave.abs().max())
    json.dump({"chats": golden, "frames": 4, "context": 2}, open(folder / "golden.json", "w"))
    save_file(tensors, folder / "golden.safetensors")


if __name__ == "__main__":
    main()
