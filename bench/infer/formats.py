#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each number format costs a model: bytes and perplexity, as a table.

  formats.py APUS MODEL TEXTS.jsonl WORK_FOLDER [--calibration ROWS.jsonl]

MODEL is a checkpoint folder or a GGUF file (its weights are taken out first). TEXTS.jsonl has rows for `apus score`. Formats of GGUF files
are llama-quantize's, byte for byte (tests/gguf); GPTQ and AWQ are calibrated on ROWS.jsonl. Products are exact; the column `int8` has
those that answers round activations for.
"""
import argparse
import json
import pathlib
import subprocess
import sys

GGUF = ("q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_0", "iq4_xs")
FOLDERS = {"gptq 8 bits": ("gptq", 8), "gptq 4 bits": ("gptq", 4), "awq 4 bits": ("awq", 4), "fp8": ("fp8", 8), "bnb nf4": ("bnb", 4), "bnb int8": ("bnb", 8)}
LOADED = {"hqq 8 bits": ("hqq", 8), "hqq 4 bits": ("hqq", 4), "hqq 3 bits": ("hqq", 3)}  # while they are loaded


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("apus", "model", "texts", "work"):
        ask.add_argument(name, type=pathlib.Path)
    ask.add_argument("--calibration", type=pathlib.Path)
    o = ask.parse_args()
    o.work.mkdir(parents=True, exist_ok=True)
    apus = str(o.apus.resolve())

    def run(*words):
        done = subprocess.run([apus, *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            print(f"apus {' '.join(map(str, words))}\n{done.stderr[-600:]}", file=sys.stderr)
        return done

    def perplexity(model, *more):
        done = run("score", "--model", model, "--dataset", o.texts, "--result_path", o.work / "scores.jsonl", *more)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return json.loads(lines[-1])["perplexity"] if lines else None

    def size(path):
        files = [path] if path.is_file() else list(path.glob("*.safetensors"))
        return sum(f.stat().st_size for f in files) / 2**20

    plain = o.model
    if plain.is_file():
        plain = o.work / "plain"
        if not (plain / "config.json").exists():
            run("export", "--model", o.model, "--to_hf", "true", "--output_dir", plain, "--exist_ok", "true")
    first = perplexity(plain, "--torch_dtype", "float32")
    print("| format | MiB | perplexity | beside f32 |\n|---|---|---|---|")

    def row(name, mib, value):
        text = "failed" if value is None else f"{value:.2f} | {100 * (value / first - 1):+.2f} %"
        print(f"| {name} | {'' if mib is None else f'{mib:.0f}'} | {text} |", flush=True)

    row("f32", None, first)
    row("bf16", size(plain), perplexity(plain, "--torch_dtype", "bfloat16"))
    for name in GGUF:
        file = o.work / f"{name}.gguf"
        if not file.exists():
            run("export", "--model", plain, "--to_gguf", name, "--output_dir", file)
        row(name, size(file), perplexity(file, "--torch_dtype", "bfloat16"))
    for name, (method, bits) in FOLDERS.items():
        if method in ("gptq", "awq") and not o.calibration:
            continue
        folder = o.work / name.replace(" ", "-")
        if not (folder / "config.json").exists():
            rows = ("--dataset", o.calibration, "--quant_n_samples", "64", "--max_length", "512") if method in ("gptq", "awq") else ()
            run("export", "--model", plain, "--quant_method", method, "--quant_bits", bits, "--output_dir", folder, "--exist_ok", "true", *rows)
        row(name, size(folder), perplexity(folder, "--torch_dtype", "bfloat16"))
    for name, (method, bits) in LOADED.items():
        row(name, None, perplexity(plain, "--torch_dtype", "bfloat16", "--quant_method", method, "--quant_bits", bits))


main()
