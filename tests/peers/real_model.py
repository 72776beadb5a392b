#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The real model of scripts/real-model, exported as a HuggingFace folder: log-probabilities of some ten thousand tokens in float32 are
transformers' within 1e-4, and its tokenizer cuts odd strings as transformers does. Skipped where APUS_REAL names no folder.

Usage: real_model.py APUS GOLDEN FOLDER
"""
import json
import os
import pathlib
import re
import sys

import tiny

TOKENS, LIMIT = 10_000, 1e-4


def texts():
    """Paragraphs of the documentation."""
    pages = sorted((pathlib.Path(__file__).resolve().parents[2] / "docs").glob("*.md"))
    for page in pages:
        for part in re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S).split("\n\n"):
            if len(part) > 300 and not part.startswith("|"):
                yield part.strip()


def main():
    apus, golden, folder = sys.argv[1:4]
    real = os.environ.get("APUS_REAL", "")
    if not real:
        print("SKIPPED: APUS_REAL names no folder that scripts/real-model filled")
        return 77
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    plain = os.path.join(folder, "plain")
    if not os.path.exists(os.path.join(plain, "config.json")):
        tiny.run(apus, "export", "--model", f"{real}/SmolLM2-135M-Instruct.gguf", "--to_hf", "true", "--output_dir", plain, "--exist_ok", "true")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(plain)
    rows, count = [], 0
    for text in texts():
        ids = tokenizer.encode(text, add_special_tokens=False)
        if count < TOKENS:
            rows.append(ids)
            count += len(ids)
    data, out = os.path.join(folder, "rows.jsonl"), os.path.join(folder, "scores.jsonl")
    with open(data, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"input_ids": ids, "labels": ids}) + "\n" for ids in rows)
    tiny.run(apus, "score", "--model", plain, "--dataset", data, "--result_path", out, "--torch_dtype", "float32", "--device", "cpu")
    ours = [json.loads(line)["logprobs"] for line in open(out, encoding="utf-8")]
    model, worst = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32).eval(), 0.0
    with torch.no_grad():
        for ids, mine in zip(rows, ours):
            logits = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
            theirs = logits.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
            worst = max(worst, (theirs - torch.tensor(mine[1:])).abs().max().item())
    print(f"{count} tokens: log-probabilities are at most {worst:.2g} apart")
    with open(os.path.join(golden, "text/strings.jsonl"), encoding="utf-8") as file:
        odd = [json.loads(line)["text"] for line in file][:500]
    with open(data, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in odd)
    tiny.run(apus, "tokenize", "--tokenizer", plain, "--dataset", data, "--result_path", out, "--add_special_tokens", "false")
    cut = [json.loads(line).get("ids") for line in open(out, encoding="utf-8")]
    wrong = sum(mine != tokenizer.encode(text, add_special_tokens=False) for mine, text in zip(cut, odd))
    print(f"{len(odd) - wrong} of {len(odd)} odd strings are cut alike")
    return 0 if worst < LIMIT and not wrong and len(cut) == len(odd) else 1


sys.exit(main())
