#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of rl_bench: the same step of GRPO written plainly in PyTorch, in one process over one set of weights. Answers are
generated with a cache of keys and values, a frozen copy gives the reference's log-probabilities, and the update goes through all logits
of a micro-batch. Random weights of the shape in MODEL_DIR/config.json (Qwen2), f32.

Usage: peer.py MODEL_DIR [--prompts 8] [--samples 8] [--prompt 128] [--answer 128] [--micro 8] [--steps 2] [--threads 2]
"""
import argparse
import copy
import json
import math
import pathlib
import time

import torch
from torch import nn
from torch.nn import functional as F


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, self.heads, self.kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        self.size = width // self.heads
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, self.kv * self.size)
        self.v = nn.Linear(width, self.kv * self.size)
        self.o = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, c["intermediate_size"], bias=False)
        self.up = nn.Linear(width, c["intermediate_size"], bias=False)
        self.down = nn.Linear(c["intermediate_size"], width, bias=False)

    def forward(self, x, cos, sin, cache):
        rows, length, _ = x.shape
        y = self.norm1(x)
        split = lambda t, heads: t.view(rows, length, heads, self.size).transpose(1, 2)
        q, k, v = rotated(split(self.q(y), self.heads), cos, sin), rotated(split(self.k(y), self.kv), cos, sin), split(self.v(y), self.kv)
        if cache is not None:
            if "k" in cache:
                k, v = torch.cat((cache["k"], k), 2), torch.cat((cache["v"], v), 2)
            cache["k"], cache["v"] = k, v
        k, v = (t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.o(y.transpose(1, 2).reshape(rows, length, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.theta, self.size = c.get("rope_theta", 1e4), c["hidden_size"] // c["num_attention_heads"]
        self.embed = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"])

    def forward(self, ids, begin=0, caches=None, last=False):
        place = torch.arange(begin, begin + ids.shape[1]).float()
        angle = torch.outer(place, self.theta ** (-torch.arange(0, self.size, 2).float() / self.size))
        angle = torch.cat((angle, angle), -1)
        x, cos, sin = self.embed(ids), angle.cos(), angle.sin()
        for i, layer in enumerate(self.layers):
            x = layer(x, cos, sin, caches[i] if caches else None)
        return F.linear(self.norm(x[:, -1:] if last else x), self.embed.weight)

    def logprobs(self, ids, prompt):
        """Of the answers' tokens."""
        logits = self(ids)[:, prompt - 1:-1]
        return logits.log_softmax(-1).gather(2, ids[:, prompt:, None]).squeeze(2)


@torch.no_grad()
def generated(model, prompts, answer):
    caches = [{} for _ in model.layers]
    ids = prompts
    logits = model(prompts, 0, caches, last=True)
    for n in range(answer):
        token = torch.multinomial(logits[:, -1].softmax(-1), 1)
        ids = torch.cat((ids, token), 1)
        if n + 1 < answer:
            logits = model(token, ids.shape[1] - 1, caches, last=True)
    return ids


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    for name, value in (("prompts", 8), ("samples", 8), ("prompt", 128), ("answer", 128), ("micro", 8), ("steps", 2), ("threads", 2)):
        parser.add_argument("--" + name, type=int, default=value)
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    config = json.loads((o.model / "config.json").read_text())
    model = Model(config)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    reference = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0)
    steps = []
    for _ in range(o.steps):
        prompts = torch.randint(config["vocab_size"], (o.prompts, o.prompt)).repeat_interleave(o.samples, 0)
        begin = time.perf_counter()
        ids = generated(model, prompts, o.answer)
        t1 = time.perf_counter()
        reward = (ids[:, -1] % 7).double().view(o.prompts, o.samples)
        advantage = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)).flatten().float()
        with torch.no_grad():
            known = torch.cat([reference.logprobs(part, o.prompt) for part in ids.split(o.micro)])
        t2 = time.perf_counter()
        for part, a, ref in zip(ids.split(o.micro), advantage.split(o.micro), known.split(o.micro)):
            now = model.logprobs(part, o.prompt)
            ratio, apart = (now - now.detach()).exp(), ref - now
            loss = -(ratio * a[:, None]) + 0.04 * (apart.exp() - apart - 1)
            (loss.mean(1).sum() / len(ids)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end = time.perf_counter()
        all_ = end - begin
        steps.append({"seconds": all_, "generation": (t1 - begin) / all_, "logprobs": (t2 - t1) / all_, "update": (end - t2) / all_})
    print(json.dumps({"peer": "torch " + torch.__version__, "threads": o.threads, "steps": steps}, indent=1))


main()
