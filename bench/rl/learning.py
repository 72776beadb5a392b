#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do the algorithms of rewards learn? A model of half a million weights is shown some reversed digits until it knows a fifth of
them; then each algorithm goes on from there by rewards alone, with several seeds. Prints a table of the share of exact answers
and writes the curves as a picture.

Usage: learning.py [--apus build/apus] [--out output/learning] [--steps 150] [--seeds 3] [--only grpo,ppo] [--picture FILE.svg]

As a reward program (it calls itself so): learning.py reward exact|shuffled|flipped
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ISLAND = HERE.parent.parent / "examples" / "island"
DIGITS, ANSWERS = 3, 128

# shuffled, flipped: grpo whose rewards are handed to other answers, or given to the wrong ones.
# Two updates of a round, so that ratios are not 1 and bounds on them matter.
TWICE = ["--num_iterations", "2"]
RUNS = {
    "grpo": ["--rlhf_type", "grpo", *TWICE],
    "gspo": ["--rlhf_type", "grpo", *TWICE, "--importance_sampling_level", "sequence"],
    "dapo": ["--rlhf_type", "grpo", *TWICE, "--loss_type", "dapo", "--epsilon_high", "0.28", "--dynamic_sample", "true",
             "--overlong_filter", "true"],
    "cispo": ["--rlhf_type", "grpo", *TWICE, "--loss_type", "cispo"],
    "rloo": ["--rlhf_type", "grpo", *TWICE, "--advantage_estimator", "rloo"],
    "reinforce++": ["--rlhf_type", "grpo", *TWICE, "--advantage_estimator", "reinforce_plus_plus"],
    "ppo": ["--rlhf_type", "ppo", "--num_ppo_epochs", "2", "--kl_coef", "0", "--critic_learning_rate", "1e-3",
            "--critic_warmup_rounds", "5"],
    "stale": ["--rlhf_type", "grpo", *TWICE, "--max_staleness", "2"],
    "pieces": ["--rlhf_type", "grpo", *TWICE, "--max_staleness", "2", "--partial_rollout", "true"],
    "shuffled": ["--rlhf_type", "grpo", *TWICE],
    "flipped": ["--rlhf_type", "grpo", *TWICE],
}


def row(rng, answered):
    digits = "".join(rng.choice("0123456789") for _ in range(DIGITS))
    messages = [{"role": "user", "content": "reverse " + digits}]
    if answered:
        messages.append({"role": "assistant", "content": digits[::-1]})
    return {"messages": messages, "solution": digits[::-1]}


def write_rows(path, count, seed, answered):
    rng = random.Random(seed)
    path.write_text("".join(json.dumps(row(rng, answered)) + "\n" for _ in range(count)))


def reward(kind):
    exact = [float(asked["completion"] == asked["solution"]) for asked in map(json.loads, sys.stdin)]
    worth = [1 - x for x in exact] if kind == "flipped" else list(exact)
    if kind == "shuffled":  # of all answers of the round, whoever gave them
        random.Random(len(exact) + int(sum(exact))).shuffle(worth)
    for x in worth:
        print(x)


class Learning:
    def __init__(self, options):
        self.o, self.out = options, pathlib.Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)

    def apus(self, name, *arguments):
        log = self.out / (name + ".log")
        with open(log, "w") as file:
            done = subprocess.run([self.o.apus, *map(str, arguments)], stdout=file, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            sys.exit(f"{name}: see {log}")

    def lines(self, folder):
        logs = sorted(folder.glob("v*/logging.jsonl"))
        return [json.loads(line) for line in logs[-1].read_text().splitlines()]

    def warm(self):
        """The model that all begin from."""
        known = sorted((self.out / "sft").glob("v*/checkpoint-*"))
        if known:
            return known[-1]
        model = self.out / "model"
        self.apus("init", "init", "--config", ISLAND, "--tokenizer", ISLAND, "--output_dir", model, "--torch_dtype", "float32",
                  "--exist_ok", "true")
        write_rows(self.out / "shown.jsonl", 12000, 1, True)
        self.apus("sft", "sft", "--model", model, "--dataset", self.out / "shown.jsonl", "--output_dir", self.out / "sft",
                  "--tuner_type", "full", "--learning_rate", "2e-3", "--per_device_train_batch_size", "32",
                  "--gradient_accumulation_steps", "1", "--max_steps", self.o.shown, "--save_steps", self.o.shown)
        return sorted((self.out / "sft").glob("v*/checkpoint-*"))[-1]

    def curve(self, name, seed):
        """The share of exact answers, by rounds."""
        kind = name if name in ("shuffled", "flipped") else "exact"
        folder = self.out / f"{name}_{seed}"
        if not sorted(folder.glob("v*/logging.jsonl")):
            passes = 2  # updates of a round
            batch = ["--per_device_train_batch_size", ANSWERS]
            groups = [] if "ppo" in RUNS[name] else ["--num_generations", 8, "--beta", 0]
            self.apus(folder.name, "rlhf", *RUNS[name], "--model", self.warm(), "--tuner_type", "full", "--dataset",
                      self.out / "asked.jsonl", "--reward_funcs", f"external:{sys.executable} {HERE / 'learning.py'} reward {kind}",
                      "--output_dir", folder, *batch, *groups, "--gradient_accumulation_steps", 1, "--max_completion_length",
                      DIGITS + 2, "--temperature", 1, "--learning_rate", self.o.learning_rate, "--lr_scheduler_type", "constant",
                      "--save_strategy", "no", "--seed", seed, "--max_steps", self.o.steps * passes, "--logging_steps", passes)
        # Flipped rewards are 1 where an answer is wrong; shuffled ones are as many as are right.
        shares = [line["reward"] for line in self.lines(folder) if "reward" in line]
        return [1 - x for x in shares] if kind == "flipped" else shares


def mean(numbers):
    return sum(numbers) / max(1, len(numbers))


def rounds_until(curve, share):
    """Before the mean of five is above it."""
    return next((i for i in range(4, len(curve)) if mean(curve[i - 4:i + 1]) > share), None)


def picture(curves, path):
    """Of each algorithm the mean over its seeds, as a small SVG."""
    colours = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#17becf", "#7f7f7f", "#bcbd22"]
    width, height, left, top = 640, 300, 40, 10
    longest = max(len(c) for of_seeds in curves.values() for c in of_seeds)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 210}" height="{height + 50}" font-family="sans-serif" '
             'font-size="12">', f'<rect width="{width + 210}" height="{height + 50}" fill="white"/>']
    y_of = lambda share: top + height * (1 - share)
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<path d="M{left} {y_of(share):.1f}H{width}" stroke="#ddd"/><text x="4" y="{y_of(share) + 4:.1f}">'
                     f'{share:g}</text>')
    for k, (name, of_seeds) in enumerate(curves.items()):
        steps = min(len(c) for c in of_seeds)
        means = [mean([c[i] for c in of_seeds]) for i in range(steps)]
        smooth = [mean(means[max(0, i - 4):i + 1]) for i in range(steps)]
        points = " ".join(f"{left + (width - left) * i / max(1, longest - 1):.1f},{y_of(y):.1f}" for i, y in enumerate(smooth))
        colour = colours[k % len(colours)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<text x="{width + 12}" y="{top + 16 + 18 * k}" fill="{colour}">{name}</text>')
    parts.append(f'<text x="{left}" y="{top + height + 30}">share of exact answers over {longest} rounds, mean of the seeds</text></svg>')
    pathlib.Path(path).write_text("\n".join(parts) + "\n")


def main():
    if sys.argv[1:2] == ["reward"]:
        return reward(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apus", default="build/apus")
    parser.add_argument("--out", default="output/learning")
    parser.add_argument("--shown", type=int, default=62, help="steps of sft before")
    parser.add_argument("--steps", type=int, default=150, help="rounds of answers, each learnt from twice")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--learning_rate", default="5e-4")
    parser.add_argument("--only", help="names, with commas between them")
    parser.add_argument("--picture")
    options = parser.parse_args()
    learning = Learning(options)
    write_rows(learning.out / "asked.jsonl", 40000, 2, False)
    curves = {}
    print("| | first three rounds | last ten rounds, seed by seed | rounds until above 0.9 |\n|---|---|---|---|")
    for name in options.only.split(",") if options.only else RUNS:
        curves[name] = [learning.curve(name, seed) for seed in range(1, options.seeds + 1)]
        ends = ", ".join(f"{mean(c[-10:]):.2f}" for c in curves[name])
        known = [str(r) if (r := rounds_until(c, 0.9)) is not None else "never" for c in curves[name]]
        print(f"| {name} | {mean([mean(c[:3]) for c in curves[name]]):.2f} | {ends} | {', '.join(known)} |", flush=True)
    if options.picture:
        picture(curves, options.picture)


main()
