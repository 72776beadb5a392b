#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A second peer of train_bench: transformers' own Qwen2 of the 0.5B shape, with PEFT's LoRA, on the newest PyTorch.

Usage: peer_transformers.py lora|full LENGTH [--steps 3] [--recompute true|false] [--threads 2] [--compiled true|false]
Prints one JSON object, as peer.py. Compilation happens in a step of its own that is not counted.
Needs the environment that scripts/peers makes.
"""
import argparse
import json
import math
import resource
import time

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

SHAPE = dict(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
             num_key_value_heads=2, rope_theta=1e6, tie_word_embeddings=True, use_cache=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tuner", choices=("lora", "full"))
    parser.add_argument("length", type=int)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--recompute", choices=("true", "false"), default="false")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compiled", choices=("true", "false"), default="false")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    model = Qwen2ForCausalLM._from_config(Qwen2Config(**SHAPE), attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    if o.tuner == "lora":
        from peft import LoraConfig, get_peft_model
        model = get_peft_model(model, LoraConfig(r=8, lora_alpha=32, lora_dropout=0, target_modules="all-linear",
                                                 task_type="CAUSAL_LM"))
    model.train()
    if o.recompute == "true":
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=1e-5, weight_decay=0.1, fused=True)
    forward_pass = torch.compile(model) if o.compiled == "true" else model
    steps, best, least_cpu = [], math.inf, math.inf
    for step in range(-1 if o.compiled == "true" else 0, o.steps):
        ids = torch.randint(SHAPE["vocab_size"], (1, o.length))
        start, cpu = time.perf_counter(), time.process_time()
        loss = forward_pass(input_ids=ids, labels=ids).loss
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end = time.perf_counter()
        if step < 0:
            continue
        best, least_cpu = min(best, end - start), min(least_cpu, time.process_time() - cpu)
        steps.append({"loss": loss.item(), "forward_s": forward - start, "backward_s": backward - forward,
                      "optimizer_s": end - backward})
    kind = "compiled" if o.compiled == "true" else "eager"
    print(json.dumps({"peer": f"transformers, {kind}, torch {torch.__version__}", "tuner": o.tuner, "length": o.length,
                      "recompute": o.recompute, "tokens_per_s": o.length / best, "cpu_s_per_step": least_cpu,
                      "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20), "steps": steps}, indent=1))


if __name__ == "__main__":
    main()
