#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""encode, decode and apply_chat_template of the installed transformers against `apus tokenize`, on every tokenizer at hand.

Usage: tokenizer_text.py APUS GOLDEN FOLDER
"""
import glob
import json
import os
import sys

import rows as all_rows
import tiny


def strings(golden):
    with open(os.path.join(golden, "text/strings.jsonl"), encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file][:250]


def tokenize(apus, folder, tokenizer, rows, *flags):
    data, out = os.path.join(folder, "rows.jsonl"), os.path.join(folder, "out.jsonl")
    with open(data, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    tiny.run(apus, "tokenize", "--tokenizer", tokenizer, "--dataset", data, "--result_path", out, *flags)
    with open(out, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def report(title, ours, theirs, inputs):
    wrong = [i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b]
    print(f"{title:34} {len(ours) - len(wrong)} of {len(ours)} equal", flush=True)
    for i in wrong[:3]:
        print(f"    {str(inputs[i])[:120]!r}\n    ours   {str(ours[i])[:160]!r}\n    theirs {str(theirs[i])[:160]!r}")
    return not wrong


def main():
    apus, golden, folder = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    # Not AutoTokenizer: without a config.json it cannot know the class, and for some classes it rebuilds the tokenizer by
    # its own idea of the family instead of reading tokenizer.json.
    from transformers import PreTrainedTokenizerFast
    texts, good = strings(golden), True
    for path in sorted(glob.glob(os.path.join(golden, "text/tokenizers/*/tokenizer.json"))):
        place = os.path.dirname(path)
        name = os.path.basename(place)
        peer = PreTrainedTokenizerFast.from_pretrained(place)
        for special in (False, True):
            theirs = [peer.encode(t, add_special_tokens=special) for t in texts]
            ours = [r.get("ids", r) for r in tokenize(apus, folder, place, [{"text": t} for t in texts], "--add_special_tokens",
                                                      str(special).lower())]
            good &= report(f"{name}: ids{' with BOS' if special else ''}", ours, theirs, texts)
        ids = [peer.encode(t, add_special_tokens=True) for t in texts]
        for skip in (False, True):
            theirs = [peer.decode(i, skip_special_tokens=skip, clean_up_tokenization_spaces=False) for i in ids]
            ours = [r.get("text", r) for r in tokenize(apus, folder, place, [{"ids": i} for i in ids], "--skip_special_tokens",
                                                       str(skip).lower())]
            good &= report(f"{name}: text{' without special' if skip else ''}", ours, theirs, texts)
        if not peer.chat_template:
            continue
        chats = [r["messages"] for r in all_rows.rows() if r["shape"] in ("one turn", "system", "several turns", "thoughts")]
        for prompt in (False, True):
            cut = [c[:-1] if prompt else c for c in chats]
            theirs = [peer.apply_chat_template(c, tokenize=True, add_generation_prompt=prompt, return_dict=False) for c in cut]
            ours = [r.get("ids", r) for r in tokenize(apus, folder, place, [{"messages": c} for c in cut],
                                                      "--add_generation_prompt", str(prompt).lower())]
            good &= report(f"{name}: chats{' with prompt' if prompt else ''}", ours, theirs, cut)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
