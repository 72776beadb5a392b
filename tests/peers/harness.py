#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`apus eval --eval_prompts lm_eval` against lm-evaluation-harness itself: the same rows and weights through its own tasks' definitions,
every score equal. Of a tiny checkpoint, and of the real model where APUS_REAL names its folder (scripts/real-model).

Usage: harness.py APUS GOLDEN FOLDER
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import tiny

ROWS = 24
# Ours, its definition, metrics (ours by its name); examples before each question.
TASKS = {
    "arc": ("arc/arc_challenge.yaml", {"acc": "acc,none", "acc_norm": "acc_norm,none"}, 0),
    "hellaswag": ("hellaswag/hellaswag.yaml", {"acc": "acc,none", "acc_norm": "acc_norm,none"}, 2),
    "winogrande": ("winogrande/default.yaml", {"acc": "acc,none"}, 1),
    "mmlu": ("mmlu/default/mmlu_anatomy.yaml", {"acc": "acc,none"}, 3),
    "gsm8k": ("gsm8k/gsm8k.yaml", {"strict-match": "exact_match,strict-match", "flexible-extract": "exact_match,flexible-extract"}, 2),
}
NAMES = ["Anna", "Ben", "Clara", "David", "Eva", "Felix"]
PLACES = ["the kitchen", "the garden", "a small boat", "the old library"]
DEEDS = ["picks up a brush and starts to paint the door", "opens the [step] box and looks inside", "waters the plants  slowly",
         "reads a long letter", "ties the rope to the mast", "counts the coins on the table"]


def arc(chance):
    a, b = chance.randint(2, 40), chance.randint(2, 40)
    wrong = chance.sample([n for n in range(2, 90) if n != a + b], 3)
    texts = [str(n) if chance.random() < 0.5 else f"It is {n}, as one sees" for n in [a + b] + wrong]
    order = chance.sample(range(4), 4)
    return {"id": "x", "question": f"What is {a} plus {b}?", "choices": {"text": [texts[i] for i in order], "label": list("ABCD")},
            "answerKey": "ABCD"[order.index(0)]}


def hellaswag(chance):
    endings = chance.sample(DEEDS, 4)
    return {"ind": 0, "activity_label": "Household", "ctx_a": f"{chance.choice(NAMES)} walks into {chance.choice(PLACES)}. [header] How [title] Begin",
            "ctx_b": chance.choice(["she", "he Then", ""]), "ctx": "", "endings": endings, "label": str(chance.randrange(4)),
            "source_id": "s", "split": "val", "split_type": "x"}


def winogrande(chance):
    one, two = chance.sample(NAMES, 2)
    return {"sentence": f"{one} thanked {two} because _ had {chance.choice(['helped', 'been helped'])} in {chance.choice(PLACES)}.",
            "option1": one, "option2": two, "answer": str(chance.randint(1, 2))}


def mmlu(chance):
    a, b = chance.randint(2, 12), chance.randint(2, 12)
    return {"question": f" How many bones are {a} times {b} bones? ", "subject": "anatomy",
            "choices": [str(a * b + d) for d in (0, 1, -1, 7)], "answer": chance.randrange(4)}


def gsm8k(chance):
    a, b = chance.randint(2, 60), chance.randint(2, 60)
    who, total = chance.choice(NAMES), 1000 * a + b
    return {"question": f"{who} has {1000 * a} apples and buys {b} more. How many apples has {who}?",
            "answer": f"{1000 * a} + {b} = <<{1000 * a}+{b}={total}>>{total}.\n#### {total:,}"}


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def theirs(model, folder):
    import lm_eval
    from lm_eval.tasks import TaskManager
    definitions = pathlib.Path(lm_eval.__file__).parent / "tasks"
    made = folder / "tasks"
    made.mkdir(exist_ok=True)
    for name, (file, _, shots) in TASKS.items():
        lines = [f"include: {definitions / file}", f"task: local_{name}", "dataset_path: json", "dataset_name: null", "tag: null",
                 "training_split: null", "validation_split: null", "test_split: test", "fewshot_split: train", f"num_fewshot: {shots}",
                 "fewshot_config: {sampler: first_n}",
                 f"dataset_kwargs: {{data_files: {{test: {folder}/{name}/test.jsonl, train: {folder}/{name}/train.jsonl}}}}"]
        (made / f"local_{name}.yaml").write_text("\n".join(lines) + "\n")
    found = lm_eval.simple_evaluate(model="hf", model_args={"pretrained": str(model), "dtype": "float32", "trust_remote_code": False},
                                    tasks=[f"local_{name}" for name in TASKS], device="cpu", batch_size=1, bootstrap_iters=0,
                                    task_manager=TaskManager(include_path=str(made)))
    return {name: {metric: found["results"][f"local_{name}"][key] for metric, key in TASKS[name][1].items()} for name in TASKS}


def ours(apus, model, folder):
    args = {name: {"few_shot_num": shots} for name, (_, _, shots) in TASKS.items()}
    done = subprocess.run([apus, "eval", "--model", model, "--torch_dtype", "float32", "--quant_compute", "exact", "--eval_prompts", "lm_eval",
                           "--eval_dataset", *(f"{name}={folder}/{name}" for name in TASKS), "--eval_dataset_args", json.dumps(args),
                           "--eval_output_dir", folder / "out", "--device", "cpu"], capture_output=True, text=True)
    if done.returncode: sys.exit(done.stderr[-3000:])
    report = json.loads((pathlib.Path(re.findall(r"results: (\S+)", done.stderr)[-1]) / "report.json").read_text())
    out = {name: {} for name in TASKS}
    for score in report["scores"]:
        if not score["subset"]: out[score["set"]][score["metric"]] = score["score"]
    return out


def compare(apus, title, model, folder):
    mine, peer, wrong = ours(apus, model, folder), theirs(model, folder), 0
    for name in TASKS:
        for metric, value in peer[name].items():
            same = abs(mine[name].get(metric, -1) - value) < 1e-9
            wrong += not same
            print(f"{title:8} {name:12} {metric:18} {mine[name].get(metric, -1):.4f} {value:.4f} {'' if same else 'DIFFERENT'}")
    return wrong


def main():
    apus, golden, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]).resolve()
    try:
        import lm_eval  # noqa: F401
    except ImportError:
        print("SKIPPED: the environment of peers has no lm_eval")
        sys.exit(77)
    chance = random.Random(5)
    for name, make in {"arc": arc, "hellaswag": hellaswag, "winogrande": winogrande, "mmlu": mmlu, "gsm8k": gsm8k}.items():
        write(folder / name / "test.jsonl", [make(chance) for _ in range(6 if name == "gsm8k" else ROWS)])
        write(folder / name / "train.jsonl", [make(chance) for _ in range(4)])
    os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
    small = tiny.make(apus, str(folder / "tiny"), "qwen2", golden / "text/tokenizers/tiny-qwen2.5")
    wrong = compare(apus, "tiny", small, folder)
    real = os.environ.get("APUS_REAL", "")
    if real:
        plain = folder / "real"
        if not (plain / "config.json").exists():
            subprocess.run([apus, "export", "--model", f"{real}/SmolLM2-135M-Instruct.gguf", "--to_hf", "true", "--output_dir", plain,
                            "--exist_ok", "true"], check=True)
        wrong += compare(apus, "real", plain, folder)
    sys.exit(1 if wrong else 0)


main()
