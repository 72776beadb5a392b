#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ms-swift's template against ours: token ids, labels and weights of 300 rows of all shapes, under the flags that change them.

Usage: swift_template.py APUS GOLDEN FOLDER [--only TEMPLATE] [--show N]
Prints one line for each template and flags; swift_differences.py names the rows that may differ, and why.
"""
import argparse
import collections
import json
import os
import subprocess
import sys

import rows as all_rows
import samples
import swift_differences
import tiny

# Name -> tokenizer's folder, our flags, ms-swift's model and template
TEMPLATES = {
    "qwen2": ("tiny-qwen2.5", [], "qwen2", "qwen2_5"),
    "qwen3": ("tiny-qwen3", [], "qwen3", "qwen3"),
    "llama": ("tiny-llama3", ["--template", "llama3"], "llama", "llama3"),
}
# Name -> our flags, ms-swift's arguments. The flags' names are the same; `delete` is called raise inside of ms-swift.
FLAGS = {
    "plain": {},
    "last_round": {"loss_scale": "last_round"},
    "all": {"loss_scale": "all"},
    "hermes": {"loss_scale": "hermes"},
    "react": {"loss_scale": "react"},
    "qwen": {"loss_scale": "default+qwen"},
    "think_prefix": {"loss_scale": "ignore_think_prefix"},
    "two tables": {"loss_scale": "last_round+hermes+ignore_think_prefix"},
    "not binary": {"is_binary_loss_scale": False},
    "system": {"system": "You are terse."},
    "no prefix": {"add_non_thinking_prefix": False},
    "empty think learnt": {"disable_ignore_empty_think": True},
    "thoughts kept": {"preserve_thinking": True, "loss_scale": "last_round"},
    "thoughts dropped": {"preserve_thinking": False},
    "delete": {"max_length": 110, "truncation_strategy": "delete"},
    "left": {"max_length": 110, "truncation_strategy": "left"},
    "right": {"max_length": 110, "truncation_strategy": "right"},
    "no template": {"use_chat_template": False},
    "pt": {"use_chat_template": False, "loss_scale": "all", "truncation_strategy": "split", "max_length": 24},
}


def text_of(value):
    return value if isinstance(value, str) else json.dumps(value)


def write_rows(folder):
    """A file for each shape, since ms-swift decides by a file's columns what its rows are."""
    shapes = collections.OrderedDict()
    for row in all_rows.rows():
        shapes.setdefault(row["shape"], []).append(row)
    files = []
    for number, (shape, chosen) in enumerate(shapes.items()):
        path = os.path.join(folder, f"rows_{number:02}.jsonl")
        all_rows.write(path, chosen)
        files.append(path)
    return files, {row["channel"]: row for row in all_rows.rows()}


def ours(apus, model, files, flags, folder):
    words = [w for name, value in flags.items() for w in ("--" + name, text_of(value))]
    done = subprocess.run([apus, "export", "--to_cached_dataset", "true", "--model", model, "--dataset", *files,
                           "--dataset_shuffle", "false", "--output_dir", folder, "--exist_ok", "true", *words],
                          capture_output=True, text=True)
    if done.returncode and "no row is left" in done.stderr:
        return {}
    if done.returncode:
        sys.exit("apus export failed:\n" + done.stderr[-4000:])
    found = collections.defaultdict(list)
    for sample in samples.read(os.path.join(folder, "train", "samples.bin")):
        weights = sample["weights"] or [1.0] * len(sample["ids"])
        factors = [w if label != -100 else 0.0 for w, label in zip(weights, sample["labels"])]
        found[sample["channel"]].append({"ids": sample["ids"], "factors": factors})
    return found


def theirs(rows, processor, template_type, flags):
    from swift.template import get_template
    flags = dict(flags)
    empty_think_learnt = flags.pop("disable_ignore_empty_think", False)
    scale = flags.pop("loss_scale", "default")
    if template_type == "qwen3" and not empty_think_learnt and "ignore_empty_think" not in scale:
        scale += "+ignore_empty_think"  # as TemplateArguments does it
    system = flags.pop("system", None)
    cut = flags.pop("truncation_strategy", "delete")
    template = get_template(processor, system, template_type=template_type, loss_scale=scale,
                            truncation_strategy="raise" if cut == "delete" else cut, **flags)
    template.set_mode("train")
    found = {}
    for row in rows:
        try:
            encoded = template.encode(dict(row))
        except Exception as error:  # a row that ms-swift leaves out
            found[row["channel"]] = f"{type(error).__name__}: {str(error)[:100]}"
            continue
        parts = encoded if isinstance(encoded, list) else [encoded]
        found[row["channel"]] = [
            {"ids": list(p["input_ids"]),
             "factors": [(w if label != -100 else 0.0) for w, label in
                         zip(p.get("loss_scale") or [1.0] * len(p["labels"]), p["labels"])]} for p in parts]
    return found


def learns(parts):
    return isinstance(parts, list) and any(f > 0 for p in parts for f in p["factors"])


def without_empty(parts):
    """What trains nothing changes nothing: we leave such rows out, ms-swift keeps them."""
    return [p for p in parts if any(p["factors"])] if isinstance(parts, list) else []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("apus")
    parser.add_argument("golden")
    parser.add_argument("folder")
    parser.add_argument("--only")
    parser.add_argument("--flags")
    parser.add_argument("--show", type=int, default=1, help="rows of each shape that are shown")
    o = parser.parse_args()
    os.makedirs(o.folder, exist_ok=True)
    os.environ.setdefault("MODELSCOPE_CACHE", os.path.join(o.folder, "cache"))
    os.environ["LOG_LEVEL"] = "ERROR"
    os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    from swift.dataset import load_dataset
    from swift.model import get_processor

    files, shapes = write_rows(o.folder)
    rows = []
    for path in files:
        rows += [{k: v for k, v in row.items() if v is not None} for row in load_dataset([path], load_from_cache_file=False)[0]]
    bad, checked = 0, 0
    for name, (tokenizer, our_flags, model_type, template_type) in TEMPLATES.items():
        if o.only and o.only != name:
            continue
        model = os.path.join(o.folder, "model_" + name)
        if not os.path.exists(os.path.join(model, "config.json")):
            tiny.make(o.apus, model, model_type, os.path.join(o.golden, "text/tokenizers", tokenizer))
        processor = get_processor(model, model_type=model_type)
        for title, flags in FLAGS.items():
            if o.flags and o.flags != title:
                continue
            extra = [] if flags.get("use_chat_template") is False else our_flags
            mine = ours(o.apus, model, files, {**flags, **dict(zip([f[2:] for f in extra[::2]], extra[1::2]))},
                        os.path.join(o.folder, "cached"))
            peer = theirs(rows, processor, template_type, flags)
            wrong, argued = collections.Counter(), collections.Counter()
            for channel, row in shapes.items():
                shape = row["shape"]
                checked += 1
                a, b = without_empty(mine.get(channel, [])), without_empty(peer.get(channel, []))
                if a == b:
                    continue
                if swift_differences.allowed(name, title, row):
                    argued[shape] += 1
                    continue
                wrong[shape] += 1
                if wrong[shape] <= o.show:
                    show(processor.decode, channel, shape, a, b, peer.get(channel))
            bad += sum(wrong.values())
            print(f"{name:6} {title:20} equal {len(shapes) - sum(wrong.values()) - sum(argued.values()):3}, argued "
                  f"{sum(argued.values()):3}, different {sum(wrong.values()):3} {dict(wrong) if wrong else ''}", flush=True)
    print(f"{checked} samples compared, {bad} differ without a reason")
    return 1 if bad else 0


def marked(decode, parts):
    """The text, with a mark where the weight changes and a bar between parts."""
    out = []
    for p in parts:
        last, run = None, []
        for token, factor in zip(p["ids"] + [None], p["factors"] + [None]):
            if factor != last and run:
                out += [f"\u27e8{last:g}\u27e9", decode(run)]
                run = []
            run.append(token)
            last = factor
        out.append("\u2551")
    return "".join(out)


def show(decode, channel, shape, mine, peer, raw):
    a, b = marked(decode, mine) or "left out", marked(decode, peer) or f"left out ({raw if isinstance(raw, str) else 'nothing learnt'})"
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    start = max(0, same - 60)
    print(f"  {channel} ({shape}), from character {start}:\n    ours     {a[start:start + 260]!r}\n    ms-swift {b[start:start + 260]!r}")
    if a == b:
        print(f"    ours     {[p['ids'] for p in mine]}\n    ms-swift {[p['ids'] for p in peer]}")


if __name__ == "__main__":
    sys.exit(main())
