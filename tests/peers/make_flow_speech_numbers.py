# SPDX-License-Identifier: Apache-2.0
"""The numbers of Qwen2.5-Omni's voice: a tiny checkpoint of random weights, and what transformers says with it.

  make_flow_speech_numbers.py tests/data/models/qwen2_5_omni_thinker/checkpoint/config.json tests/data/speech/qwen2_5_omni [--seed N]

The thinker's settings are those of the given file. Written are checkpoint/ (with its spk_dict.pt), golden.json (tokens and pictures of
two chats) and golden.safetensors (the codes, drawn greedily, the noise that sound began as, and the sound). Weights are rounded to
bfloat16, all is computed in float32. transformers 4.57.3 is to be asked: 5.24 drops a mask that hides nothing before the talker sees it,
and with it the codes under the prompt's last rows and the positions of pictures."""
import argparse
import copy
import json
import pathlib

import torch
from random_weights import random_weights
from safetensors.torch import save_file
from transformers import Qwen2_5OmniConfig, Qwen2_5OmniForConditionalGeneration

WORDS = 80  # of the talker; the first 64 are codes
NONE, BEGIN, END, MASK = 66, 67, 68, 70
BEGIN_TEXT, END_TEXT, NO_TEXT, HIS_TEXT, HER_TEXT = 374, 375, 376, 371, 372
TURN, USER, ASSISTANT, LINE, END_TURN = 381, 380, 379, 378, 377
MEL = 10


def speaking(thinker):
    shared = {name: thinker[name] for name in ("image_token_index", "video_token_index", "audio_token_index", "vision_start_token_id",
                                               "vision_end_token_id", "audio_start_token_id", "audio_end_token_id")}
    talker = {**shared, "vocab_size": WORDS, "embedding_size": thinker["text_config"]["hidden_size"], "hidden_size": 48,
              "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 16, "num_hidden_layers": 2, "intermediate_size": 56,
              "rms_norm_eps": 1e-6, "rope_theta": 1e6, "rope_scaling": {"rope_type": "default", "mrope_section": [2, 3, 3]},
              "max_position_embeddings": 4096, "tts_codec_pad_token_id": NONE, "tts_codec_start_token_id": BEGIN,
              "tts_codec_end_token_id": END, "tts_codec_mask_token_id": MASK, "tts_text_start_token_id": BEGIN_TEXT,
              "tts_text_end_token_id": END_TEXT, "tts_text_pad_token_id": NO_TEXT, "spatial_merge_size": 2}
    flow = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "head_dim": 16, "ff_mult": 2, "emb_dim": 12,
            "block_size": 5, "look_ahead_layers": [1], "look_backward_layers": [0, 2], "repeats": 2, "num_embeds": WORDS - 1,
            "mel_dim": MEL, "enc_emb_dim": 6, "enc_dim": 8, "enc_channels": [8, 8, 8, 16], "enc_kernel_sizes": [5, 3, 3, 1],
            "enc_dilations": [1, 2, 3, 1], "enc_attention_channels": 4, "enc_res2net_scale": 2, "enc_se_channels": 4}
    wave = {"mel_dim": MEL, "upsample_initial_channel": 16, "resblock_kernel_sizes": [3, 5], "resblock_dilation_sizes": [[1, 3, 5], [1, 2, 3]],
            "upsample_rates": [3, 2], "upsample_kernel_sizes": [7, 4]}
    return {"model_type": "qwen2_5_omni", "enable_audio_output": True, "thinker_config": thinker, "talker_config": talker,
            "token2wav_config": {"dit_config": flow, "bigvgan_config": wave}}


def chats(config):
    """Each a prompt, and the picture in it if there is one: its grid."""
    thinker = config["thinker_config"]
    user, answer = [TURN, USER, LINE], [TURN, ASSISTANT, LINE]
    picture = [thinker["vision_start_token_id"]] + [thinker["image_token_index"]] * 6 + [thinker["vision_end_token_id"]]
    yield user + [30, 31, 32, END_TURN, LINE, TURN, ASSISTANT, LINE, 40, 41, END_TURN, LINE] + user + [33, END_TURN, LINE] + answer, None
    yield user + [50] + picture + [51, END_TURN, LINE] + answer, (1, 4, 6)


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("config")
    ask.add_argument("folder", type=pathlib.Path)
    ask.add_argument("--seed", type=int, default=7)
    ask.add_argument("--frames", type=int, default=9)
    args = ask.parse_args()
    torch.manual_seed(args.seed)
    config = speaking(json.load(open(args.config))["thinker_config"])
    model = Qwen2_5OmniForConditionalGeneration(Qwen2_5OmniConfig(**{k: v for k, v in config.items() if k != "model_type"})).eval().float()
    random_weights(model)
    with torch.no_grad():  # a sound that is seldom cut off, and voices that differ
        model.token2wav.code2wav_bigvgan_model.conv_post.weight.mul_(0.25)
        model.thinker.get_input_embeddings().weight[[HIS_TEXT, HER_TEXT]] *= 8
    checkpoint = args.folder / "checkpoint"
    checkpoint.mkdir(parents=True, exist_ok=True)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(checkpoint)  # tables of angles and filters are not to be rounded
    model.speaker_map = {name: {"bos_token": word, "cond": torch.randn(1, 6), "ref_mel": torch.randn(1, length, MEL) - 2}
                         for name, word, length in (("Ethan", HIS_TEXT, 13), ("Chelsie", HER_TEXT, 17))}
    torch.save(model.speaker_map, checkpoint / "spk_dict.pt")
    golden, tensors = [], {}
    for i, (prompt, grid) in enumerate(chats(config)):
        given = {}
        if grid:
            vision = config["thinker_config"]["vision_config"]
            pixels = torch.randn(grid[0] * grid[1] * grid[2], 3 * vision["temporal_patch_size"] * vision["patch_size"] ** 2)
            given = {"thinker_pixel_values": pixels, "image_grid_thw": torch.tensor([grid])}
            tensors[f"{i}.pixel_values"] = pixels
        codes, noise, mels = [], [], []
        flow, randn = model.token2wav.code2wav_dit_model, torch.randn
        model.token2wav.register_forward_pre_hook(lambda m, a: codes.append(a[0]))
        model.token2wav.code2wav_bigvgan_model.register_forward_pre_hook(lambda m, a: mels.append(a[0]))
        torch.randn = lambda *size, **how: noise.append(randn(*size, **how)) or noise[-1]
        ids = torch.tensor([prompt])
        tokens, wave = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), speaker="Ethan", thinker_max_new_tokens=7,
                                      thinker_do_sample=False, talker_do_sample=False, talker_max_new_tokens=args.frames + 1,
                                      talker_repetition_penalty=1.05, talker_eos_token_id=[NONE, END], thinker_eos_token_id=END_TURN,
                                      **given)
        torch.randn = randn
        golden.append({"prompt": prompt, "tokens": tokens[0].tolist(), "grid": grid, "voice": "Ethan"})
        tensors[f"{i}.codes"] = codes[0].T.contiguous()  # [frames, 1]
        tensors[f"{i}.noise"], tensors[f"{i}.mel"] = noise[0][0, :mels[0].shape[2]].contiguous(), mels[0][0].T.contiguous()
        tensors[f"{i}.sound"] = wave.flatten()
        print(len(prompt), "tokens, answered", len(tokens[0]) - len(prompt), "codes", codes[0].tolist(), "mel", mels[0].shape,
              mels[0].abs().max(), "samples", wave.numel(), wave.abs().max(), wave.std())
    json.dump({"chats": golden}, open(args.folder / "golden.json", "w"))
    save_file(tensors, args.folder / "golden.safetensors")


if __name__ == "__main__":
    main()
