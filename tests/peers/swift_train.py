#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""20 steps of `swift sft` against `apus sft` on the same rows, f32 on the processor: all weights and LoRA, with and without weights.

Usage: swift_train.py APUS GOLDEN FOLDER [CASE...]
"""
import os
import shutil
import sys

import rows as all_rows
import tiny

STEPS = 20
SHARED = ["--max_steps", STEPS, "--per_device_train_batch_size", 2, "--gradient_accumulation_steps", 2, "--learning_rate", "1e-3",
          "--dataset_shuffle", "false", "--train_dataloader_shuffle", "false", "--logging_steps", 1, "--torch_dtype", "float32",
          "--warmup_ratio", 0.1, "--save_strategy", "no", "--report_to", "none", "--add_version", "false", "--packing", "false"]
SWIFT = ["--model_type", "qwen2", "--template", "qwen2_5", "--check_model", "false", "--load_from_cache_file", "false",
         "--gradient_checkpointing", "false", "--dataloader_num_workers", 0, "--attn_impl", "eager"]
LORA = ["--tuner_type", "lora", "--lora_rank", 4, "--lora_alpha", 8, "--lora_dropout", 0]
CASES = [
    ("full", ["--tuner_type", "full"]),
    ("full, hermes' weights", ["--tuner_type", "full", "--loss_scale", "hermes"]),
    ("full, last_round", ["--tuner_type", "full", "--loss_scale", "last_round"]),
    ("lora", LORA),
]


def main():
    apus, golden, folder = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    os.environ.update(MODELSCOPE_CACHE=os.path.join(folder, "cache"), HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
    swift = os.path.join(os.path.dirname(sys.executable), "swift")
    tokenizer = os.path.join(golden, "text/tokenizers/tiny-qwen2.5")
    model = tiny.make(apus, os.path.join(folder, "model"), "qwen2", tokenizer)
    # Rows of tools last: with them the table of weights says something.
    counts = {"one turn": 26, "system": 20, "several turns": 20, "tool calls": 8, "several tool calls": 6}
    chosen = [row for shape, count in counts.items() for row in [r for r in all_rows.rows() if r["shape"] == shape][:count]]
    assert len(chosen) == 4 * STEPS
    for row in chosen:
        row.pop("channel")
        row.setdefault("tools", "[]")
    data = os.path.join(folder, "rows.jsonl")
    all_rows.write(data, chosen)
    # Both go on from one adapter, which we write and ms-swift reads.
    start = os.path.join(folder, "start")
    shutil.rmtree(start, ignore_errors=True)
    tiny.run(apus, "sft", "--model", model, "--dataset", data, "--output_dir", start, *LORA, "--max_steps", 1, "--learning_rate", 0,
             "--add_version", "false", "--report_to", "none")
    good = True
    for number, (title, flags) in enumerate(CASES):
        if sys.argv[4:] and title not in sys.argv[4:]:
            continue
        if flags is LORA:
            flags = [*flags, "--adapters", os.path.join(start, "checkpoint-1")]
        losses = []
        for name, words in (("ours", [apus, "sft"]), ("theirs", [swift, "sft", *SWIFT])):
            out = os.path.join(folder, f"{name}{number}")
            shutil.rmtree(out, ignore_errors=True)
            tiny.run(*words, "--model", model, "--dataset", data, "--output_dir", out, *SHARED, *flags)
            losses.append([tiny.log_of(out, key) for key in ("loss", "grad_norm", "token_acc")])
        good &= tiny.compare(f"sft {title}: loss", losses[0][0], losses[1][0], 1e-4)
        good &= tiny.compare(f"sft {title}: grad_norm", losses[0][1], losses[1][1], 1e-3)
        if losses[0][2] and losses[1][2]:
            good &= tiny.compare(f"sft {title}: token_acc", losses[0][2], losses[1][2], 1e-4)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
