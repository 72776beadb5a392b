#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints both ways: what we write loads in transformers with our numbers, what save_pretrained writes loads here; adapters
the same with PEFT. Numbers are log-probabilities of every token (`apus score`), f32 on the processor.

Usage: checkpoints.py APUS GOLDEN FOLDER [FAMILY...]
"""
import glob
import json
import os
import shutil
import sys

import tiny

TOLERANCE = 2e-4
TEXTS = [[5, 17, 23, 9, 41, 77, 30, 3], [8, 60, 12, 12, 91, 45, 2, 7, 19, 33, 28, 54]]


def score(apus, folder, model, *flags):
    """Our log-probabilities of TEXTS' tokens, from the second on."""
    data, out = os.path.join(folder, "texts.jsonl"), os.path.join(folder, "scores.jsonl")
    with open(data, "w", encoding="utf-8") as file:
        for ids in TEXTS:
            file.write(json.dumps({"input_ids": ids}) + "\n")
    tiny.run(apus, "score", "--model", model, "--dataset", data, "--result_path", out, "--torch_dtype", "float32", *flags)
    with open(out, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def our_values(rows):
    values = []
    for row in rows:
        found = next((row[k] for k in ("logprobs", "token_logprobs") if k in row), None)
        if found is None:
            sys.exit(f"apus score gave no log-probabilities: {str(row)[:300]}")
        values += [float(v["logprob"] if isinstance(v, dict) else v) for v in found if v is not None]
    return values


def their_values(model):
    import torch
    model.eval()
    values = []
    with torch.no_grad():
        for ids in TEXTS:
            logits = model(torch.tensor([ids])).logits[0].float()
            logs = logits.log_softmax(-1)
            values += [float(logs[i, ids[i + 1]]) for i in range(len(ids) - 1)]
    return values


def main():
    apus, golden, folder = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    import torch
    from transformers import AutoModelForCausalLM
    families = sorted(os.path.basename(os.path.dirname(p)) for p in glob.glob(os.path.join(golden, "models/*/checkpoint")))
    families = [f for f in families if not sys.argv[4:] or f in sys.argv[4:]]
    good, seen = True, 0
    for family in families:
        source = os.path.join(golden, "models", family, "checkpoint")
        with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        if not str((config.get("architectures") or [""])[0]).endswith("ForCausalLM"):
            continue
        ours, theirs = os.path.join(folder, family + ".ours"), os.path.join(folder, family + ".theirs")
        for path in (ours, theirs):
            shutil.rmtree(path, ignore_errors=True)
        try:
            changed = os.path.join(folder, "config.json")
            with open(changed, "w", encoding="utf-8") as file:
                json.dump({**config, "vocab_size": 2048, "torch_dtype": "float32"}, file)
            tiny.run(apus, "init", "--config", changed, "--output_dir", ours, "--max_shard_size", "100KB", "--tokenizer",
                     os.path.join(golden, "text/tokenizers/tiny-qwen3"))
        except SystemExit as reason:
            print(f"{family:22} not ours: {str(reason).splitlines()[-1][:120]}", flush=True)
            continue
        try:
            model = AutoModelForCausalLM.from_pretrained(ours, dtype=torch.float32, attn_implementation="eager")
        except Exception as reason:
            print(f"{family:22} transformers does not load it: {type(reason).__name__}: {str(reason)[:160]}", flush=True)
            good = False
            continue
        seen += 1
        good &= tiny.compare(f"{family}: ours, loaded there", our_values(score(apus, folder, ours)), their_values(model), TOLERANCE)
        with torch.no_grad():  # other weights, so that nothing is read from the wrong folder
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.01)
        model.save_pretrained(theirs, max_shard_size="200KB")
        for name in os.listdir(ours):  # the tokenizer
            if not os.path.exists(os.path.join(theirs, name)) and ".safetensors" not in name:
                shutil.copy(os.path.join(ours, name), theirs)
        good &= tiny.compare(f"{family}: theirs, loaded here", our_values(score(apus, folder, theirs)), their_values(model), TOLERANCE)
        if family in ("qwen2", "llama3", "qwen3"):
            good &= adapters(apus, folder, theirs, model)
    print(f"{seen} families compared")
    return 0 if good and seen else 1


def adapters(apus, folder, base, model):
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM
    good = True
    for title, options in (("lora", {}), ("rslora", {"use_rslora": True}), ("dora", {"use_dora": True})):
        there = os.path.join(folder, "adapter_" + title)
        shutil.rmtree(there, ignore_errors=True)
        plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
        peft = get_peft_model(plain, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM", **options))
        with torch.no_grad():
            for name, parameter in peft.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(0, 0.05)
        peft.save_pretrained(there)
        good &= tiny.compare(f"  PEFT's {title}, loaded here", our_values(score(apus, folder, base, "--adapters", there)),
                             their_values(peft), TOLERANCE)
        # Trained here by a few steps, loaded there.
        data, out = os.path.join(folder, "train.jsonl"), os.path.join(folder, "trained_" + title)
        with open(data, "w", encoding="utf-8") as file:
            for ids in TEXTS * 4:
                file.write(json.dumps({"input_ids": ids}) + "\n")
        shutil.rmtree(out, ignore_errors=True)
        tiny.run(apus, "sft", "--model", base, "--dataset", data, "--output_dir", out, "--add_version", "false", "--max_steps", 4,
                 "--learning_rate", "1e-2", "--torch_dtype", "float32", "--report_to", "none",
                 *[w for k, v in options.items() for w in ("--" + k, "true")])
        ours = os.path.join(out, "checkpoint-4")
        plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
        good &= tiny.compare(f"  our {title}, loaded in PEFT", our_values(score(apus, folder, base, "--adapters", ours)),
                             their_values(PeftModel.from_pretrained(plain, ours)), TOLERANCE)
    return good


if __name__ == "__main__":
    sys.exit(main())
