#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/parallel/compare.py APUS WORK_FOLDER [--rounds 3] [--tokens 512] [--steps 6]: what sharing a run out over two ranks costs.

Each rank has a core of its own. What two ranks reach together is told as a share of what two runs of one rank reach that work beside
each other in the same minutes, so that both have the same memory to share. Two shapes of random weights, bf16, made in WORK_FOLDER:
one of 0.5 billion parameters, and a small mixture of experts. Training: LoRA on packed rows, whole weights for zero3. Decoding: one
sequence. Prints a table of medians, and bytes each rank sent in a step where the run counts them.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

SHAPES = {"0.5B": "qwen2.5-0.5b", "mixture": None}
MIXTURE = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 512, "num_hidden_layers": 8,
           "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 1536, "moe_intermediate_size": 256,
           "num_experts": 16, "num_experts_per_tok": 4, "norm_topk_prob": True, "vocab_size": 32000, "max_position_embeddings": 4096,
           "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
# Name, flags, the shapes that it is for, how many micro-batches of one rank a step of both has, and what is wanted.
WAYS = [("data", [], ("0.5B", "mixture"), 2, 0.95),
        ("zero3", ["--deepspeed", "zero3"], ("0.5B", "mixture"), 2, 0.85),
        ("tensor 2", ["--tensor_model_parallel_size", "2"], ("0.5B", "mixture"), 1, 0.75),
        ("experts 2", ["--expert_model_parallel_size", "2"], ("mixture",), 2, None),
        ("sequence 2", ["--sequence_parallel_size", "2"], ("0.5B",), 1, None),
        ("stages 2", ["--pipeline_model_parallel_size", "2", "--gradient_accumulation_steps", "4"], ("0.5B",), 1, None)]


def make(options):
    """The checkpoints and rows; only what is missing."""
    work = options.work
    work.mkdir(parents=True, exist_ok=True)
    (work / "mixture.json").write_text(json.dumps(MIXTURE))
    for name, preset in SHAPES.items():
        if (work / name).exists():
            continue
        what = ["--preset", preset] if preset else ["--config", str(work / "mixture.json")]
        subprocess.run([options.apus, "init", *what, "--output_dir", work / name, "--torch_dtype", "bfloat16"], check=True, capture_output=True)
    words = " ".join(f"word{i % 97} {i * 7 % 1000}" for i in range(options.tokens))
    with open(work / "rows.jsonl", "w") as out:
        for i in range(64):
            out.write(json.dumps({"messages": [{"role": "assistant", "content": f"{i} {words}"}]}) + "\n")
    (work / "asked.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "1 2 3"}]}) + "\n")


def start(options, shape, ranks, cores, flags, name):
    """A run of `apus pt` on these cores; its log is WORK/NAME.log."""
    command = [options.apus, "pt", "--model", options.work / shape, "--dataset", options.work / "rows.jsonl", "--torch_dtype", "bfloat16",
               "--max_length", str(options.tokens), "--truncation_strategy", "right", "--packing", "false", "--per_device_train_batch_size", "1",
               "--max_steps", str(options.steps), "--logging_steps", "1", "--save_strategy", "no", "--report_to", "none", "--tuner_type", options.tuner,
               "--output_dir", options.work / "out" / name, "--add_version", "false", "--overwrite_output_dir", "true"]
    if "--gradient_accumulation_steps" not in flags:
        command += ["--gradient_accumulation_steps", "1"]
    environment = dict(os.environ, OMP_NUM_THREADS="1", GOMP_SPINCOUNT="2000", APUS_BIND_CPUS="0" if ranks == 1 else "1")
    if ranks > 1:
        environment["NPROC_PER_NODE"] = str(ranks)
    log = open(options.work / f"{name}.log", "w")
    return subprocess.Popen(["taskset", "-c", cores, *map(str, command), *flags], env=environment, stdout=log, stderr=subprocess.STDOUT), log.name


def seconds_a_step(log):
    """The steps' own times but the first, which touches memory for the first time. Lines tell the mean so far."""
    text = pathlib.Path(log).read_text(errors="replace")
    until = [i * float(mean) for i, mean in enumerate(re.findall(r"'train_speed\(s/it\)': ([0-9.]+)", text), 1)]
    if len(until) < 3:
        raise SystemExit(f"{log} shows no steps:\n{text[-1500:]}")
    return statistics.median(later - sooner for sooner, later in zip(until, until[1:]))


def run(options, jobs):
    """Jobs at the same time -> seconds a step of each."""
    started = [start(options, *job) for job in jobs]
    for process, log in started:
        if process.wait() != 0:
            raise SystemExit(f"{log}: exit code {process.returncode}\n{pathlib.Path(log).read_text(errors='replace')[-1500:]}")
    return [seconds_a_step(log) for _, log in started]


def decode(options, shape, ranks, cores):
    """Tokens a second of one sequence."""
    flags = ["--tensor_model_parallel_size", "2"] if ranks > 1 else []
    environment = dict(os.environ, OMP_NUM_THREADS="1", GOMP_SPINCOUNT="2000", APUS_BIND_CPUS="0" if ranks == 1 else "1")
    command = ["taskset", "-c", cores, options.apus, "infer", "--model", options.work / shape, "--val_dataset", options.work / "asked.jsonl",
               "--template", "plain", "--temperature", "0", "--max_new_tokens", "64", "--torch_dtype", "bfloat16",
               "--result_path", options.work / f"answers_{ranks}.jsonl", "--resume", "false", *flags]
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)
    found = re.search(r'"tokens/s":([0-9.]+)', done.stdout + done.stderr)
    if not found:
        raise SystemExit(f"apus infer told no rate: {(done.stdout + done.stderr)[-1500:]}")
    return float(found.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("apus")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--tuner", default="lora", choices=("lora", "full"))
    options = parser.parse_args()
    options.apus = str(pathlib.Path(options.apus).resolve())
    options.work = options.work.resolve()
    if (os.cpu_count() or 1) < 2:
        sys.exit("two cores are wanted, one for each rank")
    make(options)
    print("| shape | two ranks share | tokens/s together | two single runs | share | wanted |\n|---|---|---|---|---|---|")
    for way, flags, shapes, batches, wanted in WAYS:
        for shape in shapes:
            alone, both = [], []
            for _ in range(options.rounds):
                pair = run(options, [(shape, 1, "0", [], f"alone_{i}") if i == 0 else (shape, 1, "1", [], f"alone_{i}") for i in range(2)])
                alone.append(sum(options.tokens / s for s in pair))
                times = 4 if "stages" in way else batches  # rows of a step
                both.append(times * options.tokens / run(options, [(shape, 2, "0,1", flags, "both")])[0])
            a, b = statistics.median(alone), statistics.median(both)
            print(f"| {shape} | {way} | {b:.0f} | {a:.0f} | {b / a:.2f} | {wanted or ''} |", flush=True)
    for shape in SHAPES:
        one = statistics.median(decode(options, shape, 1, "0") for _ in range(options.rounds))
        two = statistics.median(decode(options, shape, 2, "0,1") for _ in range(options.rounds))
        print(f"| {shape} | decoding, tensor 2 | {two:.1f} | {one:.1f} on one core | {two / one:.2f} | 1.4 |", flush=True)


if __name__ == "__main__":
    main()
