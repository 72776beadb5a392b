#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files that `apus export --to_gguf f32` writes of the tiny checkpoints in tests/data/models, read by llama.cpp: its logits of every
position against those that transformers gave of the checkpoint.

Usage: gguf_llama.py APUS GOLDEN FOLDER [NAME ...]

APUS_LLAMA_CPP names where llama.cpp is installed (cmake --install, with include/ and lib/); without it the comparison is skipped."""
import glob
import json
import os
import shutil
import subprocess
import sys

import numpy
from safetensors.numpy import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "../data/models")
TOLERANCE = 1e-3  # of the largest logit: f32 on both sides; GELU by a table of f16 there, elsewhere it is some 1e-6

# What these tiny checkpoints have and released ones of their families do not, so that llama.cpp does not load them, or that a file
# cannot say: they are made anew without it, with random weights.
AS_RELEASED = {
    "afmoe": {"num_hidden_layers": 4, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
    "exaone_moe": {"num_hidden_layers": 4, "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
                   "mlp_layer_types": ["dense"] + ["sparse"] * 3},
    "gemma3": {"num_hidden_layers": 6, "layer_types": ["sliding_attention"] * 5 + ["full_attention"], "query_pre_attn_scalar": None},
    "mistral": {"sliding_window": None},
    "arcee": {"attention_bias": False, "mlp_bias": False},
    "cohere": {"use_qk_norm": False},
    "deepseek_v2": {"topk_method": "greedy", "n_group": 1, "topk_group": 1},
    "dots1": {"attention_bias": False, "num_key_value_heads": 4, "layer_types": ["full_attention"] * 2, "sliding_window": None},
    "exaone4": {"sliding_window": None, "layer_types": ["full_attention"] * 4},
    "falcon": {"bias": False},
    "gemma2": {"query_pre_attn_scalar": None},
    "glm": {"head_dim": 12},
    "gpt_oss": {"rope_scaling": None, "rope_parameters": {"rope_type": "default", "rope_theta": 150000.0}},
    "hy_v3": {"attention_bias": False},
    "lfm2": {"conv_bias": False},
    "mamba": {"use_bias": False},
    "mamba2": {"use_bias": False, "time_step_limit": None},
    "nemotron": {"head_dim": 12},
    "olmoe": {"num_key_value_heads": 4},
    "phi3": {"sliding_window": None},
    "phi": {"qk_layernorm": False},
    "qwen2_moe": {"decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": False, "use_sliding_window": False},
    "qwen3_next": {"linear_value_head_dim": 8},
    "smollm3": {"num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0], "no_rope_layer_interval": 4, "layer_types": ["full_attention"] * 4},
    "starcoder2": {"sliding_window": None},
}
# The rest of these, which no file can say or llama.cpp does not know.
LEFT_OUT = {"llama_dynamic", "llama_longrope", "qwen2_sliding", "qwen3_moe_nonorm", "phimoe", "baichuan", "minicpm3", "youtu",
            "llama4_text", "chatglm", "internlm2", "sarvam_moe"}


def build_driver(root, folder):
    """The program that prints logits. None: there is no llama.cpp."""
    libs = [os.path.join(root, "lib", name) for name in ("libllama.so", "libggml.so")] if root else []
    if not libs or not all(os.path.exists(lib) for lib in libs):
        return None
    driver = os.path.join(folder, "llama_logits")
    subprocess.run(["c++", "-std=c++17", "-O1", "-I", os.path.join(root, "include"), os.path.join(HERE, "llama_logits.cpp"), "-o", driver,
                    *libs, "-Wl,-rpath," + os.path.join(root, "lib")], check=True)
    return driver


def tiny_tokenizer(folder):
    """Bytes alone, fewer than the smallest table has rows."""
    tokens = [chr(c) for c in range(33, 113)]
    vocab = {token: i for i, token in enumerate(tokens)}
    end = {"id": len(vocab), "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocab["ab"] = len(vocab) + 1
    ends = [end] + [dict(end, id=len(vocab) + 1 + i, content=name) for i, name in enumerate(("<unk>", "<s>", "</s>", "<|endoftext|>"))]
    json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": ends, "normalizer": None, "pre_tokenizer": level,
               "post_processor": None, "decoder": level,
               "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                         "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": ["a b"]}},
              open(os.path.join(folder, "tokenizer.json"), "w"))
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}, open(os.path.join(folder, "tokenizer_config.json"), "w"))


def as_released(name, work, ids):
    """A checkpoint made anew; its logits of these ids."""
    import torch
    import transformers
    config = json.load(open(os.path.join(MODELS, name, "checkpoint", "config.json")))
    config.update(AS_RELEASED[name])
    if config.get("time_step_limit", 0) is None:
        config.pop("time_step_limit")
    if config.get("query_pre_attn_scalar", 0) is None:
        config["query_pre_attn_scalar"] = config["head_dim"]
    torch.manual_seed(5)
    kind = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    model = transformers.AutoModelForCausalLM.from_config(kind, dtype=torch.float32).eval()
    with torch.no_grad():
        for name_of, p in model.named_parameters():
            around = 1.0 if "norm" in name_of and p.mean().abs() > 0.5 else 0.0
            p.copy_(around + torch.randn_like(p) * (0.9 / p.shape[-1] ** 0.5 if p.dim() > 1 else 0.1))
    model.save_pretrained(work)
    with torch.no_grad():
        return model(torch.tensor(ids)[None]).logits[0].numpy()


def compare(apus, driver, name, folder):
    """The largest difference, relative to the largest logit; or why there is none."""
    work = os.path.join(folder, name)
    shutil.rmtree(work, ignore_errors=True)
    golden = load_file(os.path.join(MODELS, name, "golden.safetensors"))
    ids, want = golden["right/input_ids"][0], golden["right/logits"][0]
    if name in AS_RELEASED:
        want = as_released(name, work, ids)
    else:
        shutil.copytree(os.path.join(MODELS, name, "checkpoint"), work)
    tiny_tokenizer(work)
    gguf, out = os.path.join(folder, name + ".gguf"), os.path.join(folder, name + ".f32")
    done = subprocess.run([apus, "export", "--model", work, "--to_gguf", "f32", "--output_dir", gguf, "--exist_ok", "true"], capture_output=True,
                          text=True)
    if done.returncode != 0:
        return None, "not written: " + " ".join(line for line in done.stderr.splitlines() if "ERROR" in line)[:300]
    done = subprocess.run([driver, gguf, out, *map(str, ids)], capture_output=True, text=True)
    if done.returncode != 0:
        why = [line for line in done.stderr.splitlines() if "error" in line.lower() or "assert" in line.lower()]
        return None, f"llama.cpp (exit {done.returncode}): " + (why[0] if why else done.stderr[-300:])[:300]
    got = numpy.fromfile(out, numpy.float32).reshape(len(ids), -1)[:, :want.shape[1]]
    return float(numpy.abs(got - want).max() / numpy.abs(want).max()), ""


def main():
    apus, folder, names = sys.argv[1], sys.argv[3], sys.argv[4:]
    driver = build_driver(os.environ.get("APUS_LLAMA_CPP", ""), folder)
    if not driver:
        print("SKIPPED: APUS_LLAMA_CPP names no folder with llama.cpp's include/ and lib/")
        return 77
    failed, told = [], 0
    for name in names or sorted(os.path.basename(os.path.dirname(d)) for d in glob.glob(os.path.join(MODELS, "*", "checkpoint"))):
        numbers = os.path.join(MODELS, name, "golden.safetensors")
        if name in LEFT_OUT or not os.path.exists(numbers) or "right/logits" not in load_file(numbers):
            continue
        error, why = compare(apus, driver, name, folder)
        if "are not written as GGUF" in why:
            continue
        good, told = error is not None and error < TOLERANCE, told + 1
        if not good:
            failed.append(name)
        print(f"{name:24} {'%.2e' % error if error is not None else why}{'' if good else '   NOT EXPECTED'}", flush=True)
    print("failed: " + ", ".join(failed) if failed else f"all {told} as expected")
    return 1 if failed or not told else 0


if __name__ == "__main__":
    sys.exit(main())
