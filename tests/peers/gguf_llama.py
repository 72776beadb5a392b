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
TOLERANCE = 5e-4  # of the largest logit: f32 on both sides, sums in another order, activations by tables

# What llama.cpp computes otherwise, or does not load. (Its tiny checkpoints have what no real one of the family has, where it says so.)
OTHERWISE = {}


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
    ends = [end] + [dict(end, id=len(vocab) + 1 + i, content=name) for i, name in enumerate(("<unk>", "</s>", "<|endoftext|>"))]
    json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": ends, "normalizer": None, "pre_tokenizer": level,
               "post_processor": None, "decoder": level,
               "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                         "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": ["a b"]}},
              open(os.path.join(folder, "tokenizer.json"), "w"))
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}, open(os.path.join(folder, "tokenizer_config.json"), "w"))


def compare(apus, driver, name, folder):
    """The largest difference, relative to the largest logit; or why there is none."""
    work = os.path.join(folder, name)
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(os.path.join(MODELS, name, "checkpoint"), work)
    tiny_tokenizer(work)
    gguf, out = os.path.join(folder, name + ".gguf"), os.path.join(folder, name + ".f32")
    done = subprocess.run([apus, "export", "--model", work, "--to_gguf", "f32", "--output_dir", gguf, "--exist_ok", "true"], capture_output=True,
                          text=True)
    if done.returncode != 0:
        return None, "not written: " + " ".join(line for line in done.stderr.splitlines() if "ERROR" in line)[:300]
    golden = load_file(os.path.join(MODELS, name, "golden.safetensors"))
    if "right/logits" not in golden:
        return None, "no logits of whole texts"
    ids, want = golden["right/input_ids"][0], golden["right/logits"][0]
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
    failed = []
    for name in names or sorted(os.path.basename(os.path.dirname(d)) for d in glob.glob(os.path.join(MODELS, "*", "checkpoint"))):
        if not os.path.exists(os.path.join(MODELS, name, "golden.safetensors")):
            continue
        error, why = compare(apus, driver, name, folder)
        good = error is not None and error < TOLERANCE
        if not good and name not in OTHERWISE:
            failed.append(name)
        print(f"{name:24} {'%.2e' % error if error is not None else why}{'' if good else '   (' + OTHERWISE.get(name, 'NOT EXPECTED') + ')'}", flush=True)
    print("failed: " + ", ".join(failed) if failed else "all as expected")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
