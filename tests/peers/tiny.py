# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of random weights that both sides can hold, and running our program."""
import json
import os
import subprocess
import sys

SHAPE = {"vocab_size": 2048, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu", "max_position_embeddings": 4096,
         "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": True, "torch_dtype": "float32"}


def make(apus, folder, model_type, tokenizer, **changes):
    """transformers chooses a tokenizer's class by config.json's model_type, so it must be the tokenizer's."""
    config = {**SHAPE, "model_type": model_type, "architectures": [model_type.capitalize() + "ForCausalLM"], **changes}
    with open(folder + ".json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    run(apus, "init", "--config", folder + ".json", "--tokenizer", tokenizer, "--output_dir", folder, "--exist_ok", "true")
    return folder


def run(*words, **options):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\nexit code {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}")
    return done.stdout + done.stderr


def log_of(folder, name="loss"):
    """The values of logging.jsonl's lines, one a step."""
    out = []
    with open(os.path.join(folder, "logging.jsonl"), encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if name in row and "last_model_checkpoint" not in row:
                out.append(float(row[name]))
    return out


def compare(title, ours, theirs, tolerance):
    """Prints both sides' first and last values and the largest difference; whether it is within the tolerance."""
    worst = max((abs(a - b) for a, b in zip(ours, theirs)), default=float("inf"))
    good = len(ours) == len(theirs) and worst <= tolerance
    print(f"{title:34} {len(ours)} against {len(theirs)} values, ours {ours[0]:.6f} .. {ours[-1]:.6f}, theirs {theirs[0]:.6f} .. "
          f"{theirs[-1]:.6f}, largest difference {worst:.2e} {'' if good else 'TOO LARGE (' + str(tolerance) + ')'}", flush=True)
    return good
