#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GRPO of a real model on examples/ages, by `apus rlhf` and by TRL with the same settings: rewards by update, and seconds.

Usage: trl_curve.py APUS MODEL_FOLDER [--updates 10] [--threads 1] [--only apus|trl]     (MODEL_FOLDER: in bfloat16)

LoRA of rank 8 on all linear layers, 4 questions x 8 answers an update, 40 tokens at most, temperature 0.8, a constant rate of 2e-4, no KL.
What is drawn differs by chance; the curves are to rise alike. The model is the package's of scripts/real-model, as
`apus export --to_hf true` writes it.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

AGES = pathlib.Path(__file__).resolve().parents[2] / "examples/ages"
SYSTEM = 'Answer with one line of JSON, {"name": TEXT, "age": NUMBER}, and nothing else.'
RATE, QUESTIONS, ANSWERS, TOKENS, TEMPERATURE = 2e-4, 4, 8, 40, 0.8


def by_apus(o, folder):
    options = {"rlhf_type": "grpo", "model": o.model, "dataset": AGES / "train.jsonl", "system": SYSTEM, "reward_funcs": f"external:{AGES / 'reward.py'}",
               "num_generations": ANSWERS, "per_device_train_batch_size": QUESTIONS * ANSWERS, "gradient_accumulation_steps": 1,
               "gradient_checkpointing": "false", "max_completion_length": TOKENS, "temperature": TEMPERATURE, "learning_rate": RATE,
               "lr_scheduler_type": "constant", "warmup_ratio": 0, "beta": 0, "lora_rank": 8, "lora_alpha": 32, "lora_dropout": 0,
               "max_steps": o.updates, "logging_steps": 1, "save_strategy": "no", "output_dir": folder}
    command = [o.apus, "rlhf", *(str(x) for key, value in options.items() for x in (f"--{key}", value))]
    env = {**os.environ, "OMP_NUM_THREADS": str(o.threads)}
    run = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode:
        raise SystemExit(run.stdout[-2000:])
    seconds = float(re.search(r"([\d.]+) s a step", run.stdout).group(1))
    return [float(x) for x in re.findall(r"'reward': ([\d.]+)", run.stdout)][:o.updates], seconds


def reward(completions, name, age, **_):
    """examples/ages/reward.py, as TRL asks it."""
    out = []
    for said, *right in zip(completions, name, age):
        right, worth = dict(zip(("name", "age"), right)), 0.0
        try:
            got = json.loads(said[0]["content"])
            if isinstance(got, dict):
                worth = 1.0 if got == right else 0.5 if right.items() <= got.items() else 0.1
        except ValueError:
            pass
        out.append(worth)
    return out


def by_trl(o, folder):
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer
    torch.set_num_threads(o.threads)
    rows = [json.loads(line) for line in open(AGES / "train.jsonl", encoding="utf-8")]
    data = Dataset.from_list([{"prompt": [{"role": "system", "content": SYSTEM}, row["messages"][0]], "name": row["name"], "age": row["age"]} for row in rows])
    settings = GRPOConfig(output_dir=folder, per_device_train_batch_size=QUESTIONS * ANSWERS, num_generations=ANSWERS, max_completion_length=TOKENS,
                          temperature=TEMPERATURE, top_p=1.0, top_k=0, learning_rate=RATE, max_steps=o.updates, lr_scheduler_type="constant", beta=0.0,
                          loss_type="grpo", logging_steps=1, report_to="none", save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False,
                          adam_beta2=0.95, weight_decay=0.1, max_grad_norm=1.0, gradient_accumulation_steps=1, seed=42, disable_tqdm=True)
    model = AutoModelForCausalLM.from_pretrained(o.model, dtype=torch.bfloat16)
    lora = LoraConfig(r=8, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = GRPOTrainer(model=model, args=settings, train_dataset=data, processing_class=AutoTokenizer.from_pretrained(o.model), reward_funcs=reward,
                          peft_config=lora)
    begin = time.time()
    trainer.train()
    return [line["reward"] for line in trainer.state.log_history if "reward" in line], (time.time() - begin) / o.updates


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("apus")
    ask.add_argument("model")
    ask.add_argument("--updates", type=int, default=10)
    ask.add_argument("--threads", type=int, default=1)
    ask.add_argument("--only", choices=("apus", "trl"))
    o = ask.parse_args()
    for name, run in (("apus", by_apus), ("trl", by_trl)):
        if o.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                rewards, seconds = run(o, folder)
            print(f"{name}: {seconds:.1f} s an update; rewards {' '.join(f'{x:.2f}' for x in rewards)}", flush=True)


main()
