# SPDX-License-Identifier: Apache-2.0
"""The numbers of Qwen3-TTS: a tiny checkpoint of random weights, and what its authors' program (PyPI's qwen-tts) says with it.

  make_tts_numbers.py tests/data/speech/qwen3_tts [--seed N]
  make_tts_numbers.py tests/data/speech/qwen3_tts_base --clone [--seed N]

Written are checkpoint/ with its speech_tokenizer/, golden.json (the tokens that are spoken) and golden.safetensors (the frames of codes,
all drawn greedily, and their sound; with --clone also the recording whose voice is learnt, and what is found in it). Weights are rounded to bfloat16, all is computed in float32."""
import argparse
import json
import pathlib

import torch
from qwen_tts.core.models import modeling_qwen3_tts as talking
from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig
from qwen_tts.core.models.modeling_qwen3_tts import Qwen3TTSForConditionalGeneration
from qwen_tts.core.tokenizer_12hz.configuration_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2DecoderConfig
from qwen_tts.core.tokenizer_12hz.modeling_qwen3_tts_tokenizer_v2 import Qwen3TTSTokenizerV2Decoder, Qwen3TTSTokenizerV2Encoder
from safetensors.torch import save_file
from transformers import MimiConfig, masking_utils
from transformers.audio_utils import mel_filter_bank
from transformers.models.mimi import modeling_mimi

MARKS = 1024  # at the end of the talker's words, of which only one is ever said
CODES, BOOKS = 64, 4
FRAMES = 9
TURN, USER, ASSISTANT, LINE, END = 381, 380, 379, 378, 377
ROPE = {"rope_type": "default", "mrope_section": [4, 2, 2], "interleaved": True}


def random_weights(model):
    """Rows keep the size of what they read; norms and biases differ from what a missing one would mean."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1:
                p.copy_(torch.randn_like(p) * 0.9 / (p[0].numel() if p.dim() > 2 else p.shape[-1]) ** 0.5)
            else:
                p.copy_((1 + 0.2 * torch.randn_like(p)) if "norm" in name and name.endswith("weight") else 0.1 * torch.randn_like(p))
            p.copy_(p.to(torch.bfloat16).float())


def settings(clone):
    layers = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 2, "rms_norm_eps": 1e-6,
              "max_position_embeddings": 4096, "rope_theta": 1e6}
    talker = {**layers, "vocab_size": CODES + MARKS, "hidden_size": 48, "intermediate_size": 56, "text_hidden_size": 40, "text_vocab_size": 400,
              "num_code_groups": BOOKS, "rope_scaling": ROPE, "codec_pad_id": CODES + 1, "codec_bos_id": CODES + 2,
              "codec_eos_token_id": CODES + 3, "codec_nothink_id": CODES + 4, "codec_think_bos_id": CODES + 5, "codec_think_eos_id": CODES + 6,
              "codec_think_id": CODES + 7, "codec_language_id": {"english": CODES + 8, "chinese": CODES + 9, "sichuan_dialect": CODES + 10},
              "spk_id": {"vivian": CODES + 11, "eric": CODES + 12}, "spk_is_dialect": {"vivian": False, "eric": "sichuan_dialect"},
              "code_predictor_config": {**layers, "vocab_size": CODES, "hidden_size": 32, "intermediate_size": 40, "num_code_groups": BOOKS}}
    own = {"tts_model_type": "custom_voice"}
    if clone:
        talker["spk_id"] = talker["spk_is_dialect"] = {}
        own = {"tts_model_type": "base", "speaker_encoder_config": {
            "mel_dim": 20, "enc_dim": talker["hidden_size"], "enc_channels": [8, 8, 8, 16], "enc_kernel_sizes": [5, 3, 3, 1],
            "enc_dilations": [1, 2, 3, 1], "enc_attention_channels": 4, "enc_res2net_scale": 4, "enc_se_channels": 4}}
    return {"model_type": "qwen3_tts", "architectures": ["Qwen3TTSForConditionalGeneration"], "tokenizer_type": "qwen3_tts_tokenizer_12hz",
            "tts_model_size": "1b7", "talker_config": talker, "tts_pad_token_id": 376, "tts_bos_token_id": 374, "tts_eos_token_id": 375,
            "im_start_token_id": TURN, "im_end_token_id": END, **own}


def decoder_settings():
    return {"codebook_size": CODES, "num_quantizers": BOOKS, "hidden_size": 32, "latent_dim": 24, "codebook_dim": 16, "num_attention_heads": 2,
            "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 2, "intermediate_size": 48, "sliding_window": 5,
            "upsample_rates": [3, 2], "upsampling_ratios": [2, 2], "decoder_dim": 24, "rms_norm_eps": 1e-5, "rope_theta": 10000}


def encoder_settings():
    return {"hidden_size": 16, "num_filters": 4, "upsampling_ratios": [4, 3], "codebook_size": CODES, "codebook_dim": 8,
            "vector_quantization_hidden_dimension": 8, "num_quantizers": BOOKS + 2, "num_hidden_layers": 2, "intermediate_size": 24,
            "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 9, "frame_rate": 1000, "upsample_groups": 16}


def spoken(text):
    return [TURN, ASSISTANT, LINE, *text, END, LINE, TURN, ASSISTANT, LINE]


# text, instructions, language, voice
REFERENCE = [60, 61, 62]
CASES = (([30, 31, 32, 33], [40, 41], "english", "vivian"), ([50], None, "auto", "eric"), ([34, 35, 36], None, "auto", "vivian"))


def clone_sounds(model, decoder, voice, golden, tensors):
    """Cases of a voice that is learnt: by who speaks alone, and by the words and frames of the recording too."""
    # Transformers 4 forgets the window where it is not asked of a kernel of its own; 5 does not.
    modeling_mimi.create_causal_mask = masking_utils.create_sliding_window_causal_mask
    encoder = Qwen3TTSTokenizerV2Encoder(MimiConfig(**encoder_settings())).eval().float()
    random_weights(encoder)
    with torch.no_grad():
        for name, b in encoder.named_buffers():
            if name.endswith("embed_sum"):
                b.copy_(torch.randn_like(b))
            if name.endswith("cluster_usage"):
                b.copy_(0.5 + torch.rand_like(b))
    kept = {k: v.contiguous() for k, v in encoder.state_dict().items()}
    save_file({**{"encoder." + k: v for k, v in kept.items()}, **{"decoder." + k: v.contiguous() for k, v in decoder.state_dict().items()}},
              voice / "model.safetensors", {"format": "pt"})
    time = torch.arange(3001) / 24000
    sample = (0.4 * torch.sin(2 * torch.pi * 440 * time) + 0.2 * torch.sin(2 * torch.pi * 3000 * time * time * 9)).float() + 0.01 * torch.randn(3001)
    talking.librosa_mel_fn = lambda sr, n_fft, n_mels, fmin, fmax: mel_filter_bank(
        n_fft // 2 + 1, 20, fmin, fmax, sr, norm="slaney", mel_scale="slaney").T
    with torch.no_grad():
        row = model.extract_speaker_embedding(sample.numpy(), 24000)
        frames = encoder.encode(sample[None, None], return_dict=True).audio_codes[0, :BOOKS].T
    tensors.update({"sample": sample, "row": row.contiguous(), "frames": frames.contiguous()})
    for i, (text, language, words) in enumerate((([30, 31, 32, 33], "english", None), ([34, 35], "auto", REFERENCE))):
        prompt = {"ref_code": [frames if words else None], "ref_spk_embedding": [row], "x_vector_only_mode": [not words], "icl_mode": [bool(words)]}
        codes, _ = model.generate(input_ids=[torch.tensor([spoken(text)])], languages=[language], voice_clone_prompt=prompt,
                                  ref_ids=[torch.tensor([[TURN, ASSISTANT, LINE, *words, END, LINE]]) if words else None],
                                  non_streaming_mode=False, do_sample=False, subtalker_dosample=False, max_new_tokens=FRAMES + 1)
        codes, before = codes[0], len(frames) if words else 0
        with torch.no_grad():
            sound = decoder(torch.cat([frames, codes]).T[None] if words else codes.T[None]).flatten()
        golden.append({"text": text, "language": language, "words": words})
        tensors[f"{i}.codes"], tensors[f"{i}.sound"] = codes.contiguous(), sound[sound.numel() * before // (before + len(codes)):].contiguous()
        print(codes.tolist(), sound.numel(), sound.abs().max())


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=pathlib.Path)
    ask.add_argument("--seed", type=int, default=8)
    ask.add_argument("--clone", action="store_true")
    args = ask.parse_args()
    torch.manual_seed(args.seed)
    checkpoint, voice = args.folder / "checkpoint", args.folder / "checkpoint" / "speech_tokenizer"
    voice.mkdir(parents=True, exist_ok=True)
    wanted = settings(args.clone)
    model = Qwen3TTSForConditionalGeneration(Qwen3TTSConfig(**{k: v for k, v in wanted.items() if k not in ("model_type", "architectures")})).eval()
    decoder = Qwen3TTSTokenizerV2Decoder(Qwen3TTSTokenizerV2DecoderConfig(**decoder_settings())).eval()
    for each in (model, decoder):
        random_weights(each.float())
    with torch.no_grad():
        for name, p in decoder.named_parameters():
            if name.endswith("cluster_usage"):
                p.copy_((0.5 + torch.rand_like(p)).to(torch.bfloat16).float())
        decoder.decoder[-1].conv.weight.mul_(0.25)
    save_file({k: v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}, checkpoint / "model.safetensors", {"format": "pt"})
    save_file({"decoder." + k: v.contiguous() for k, v in decoder.state_dict().items()}, voice / "model.safetensors", {"format": "pt"})
    json.dump({**wanted, "dtype": "bfloat16"}, open(checkpoint / "config.json", "w"), indent=1)
    json.dump({"model_type": "qwen3_tts_tokenizer_12hz", "decoder_config": decoder_settings(), "output_sample_rate": 24000,
               **({"encoder_config": encoder_settings()} if args.clone else {})}, open(voice / "config.json", "w"), indent=1)
    golden, tensors = [], {}
    if args.clone:
        clone_sounds(model, decoder, voice, golden, tensors)
    for i, (text, instruct, language, speaker) in enumerate(() if args.clone else CASES):
        ids = torch.tensor([spoken(text)])
        asked = torch.tensor([[TURN, USER, LINE, *instruct, END, LINE]]) if instruct else None
        with torch.no_grad():
            codes, _ = model.generate(input_ids=[ids], instruct_ids=[asked], languages=[language], speakers=[speaker], non_streaming_mode=True,
                                      do_sample=False, subtalker_dosample=False, max_new_tokens=FRAMES + 1)
            codes = codes[0]
            sound = decoder(codes.T[None])
        golden.append({"text": text, "instruct": instruct, "language": language, "voice": speaker})
        tensors[f"{i}.codes"], tensors[f"{i}.sound"] = codes.contiguous(), sound.flatten()
        print(codes.tolist(), sound.numel(), sound.abs().max())
    json.dump({"cases": golden}, open(args.folder / "golden.json", "w"))
    save_file(tensors, args.folder / "golden.safetensors")


if __name__ == "__main__":
    main()
