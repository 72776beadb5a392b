#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of train_bench: an eager decoder of the Qwen2 shape in PyTorch, written as the usual Python stack computes it
(separate projections, repeated key-value heads, a causal mask, all logits, cross-entropy in f32).

Usage: peer.py lora|full LENGTH [--steps 3] [--recompute true|false] [--threads 2]      prints one JSON object
Debian: apt-get install python3-torch
"""
import argparse
import json
import math
import resource
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, THETA = 24, 896, 14, 2, 4864, 151936, 1e6
HEAD_DIM = HIDDEN // HEADS


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class LoraLinear(nn.Module):
    """A frozen layer and two f32 factors beside it, as PEFT lays them."""

    def __init__(self, base, rank=8, alpha=32):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + (F.linear(F.linear(x.float(), self.a), self.b) * self.scale).to(x.dtype)


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.q = nn.Linear(HIDDEN, HEADS * HEAD_DIM)
        self.k = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.v = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM)
        self.o = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)
        self.gate = nn.Linear(HIDDEN, FFN, bias=False)
        self.up = nn.Linear(HIDDEN, FFN, bias=False)
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x, cos, sin, mask):
        batch, length, _ = x.shape
        y = self.norm1(x)
        split = lambda t, heads: t.view(batch, length, heads, HEAD_DIM).transpose(1, 2)
        q, k = rotated(split(self.q(y), HEADS), cos, sin), rotated(split(self.k(y), KV_HEADS), cos, sin)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, split(self.v(y), KV_HEADS)))
        score = q @ k.transpose(2, 3) / math.sqrt(HEAD_DIM) + mask
        share = F.softmax(score, -1, dtype=torch.float32).to(x.dtype)
        x = x + self.o((share @ v).transpose(1, 2).reshape(batch, length, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()

    def loss(self, ids, recompute):
        length = ids.shape[1]
        angle = torch.outer(torch.arange(length).float(), THETA ** (-torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
        angle = torch.cat((angle, angle), -1)
        x = self.embed(ids)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        mask = torch.full((length, length), torch.finfo(x.dtype).min, dtype=x.dtype).triu(1)
        if recompute:
            x.requires_grad_(True) if x.is_leaf else None
        for layer in self.layers:
            x = checkpoint(layer, x, cos, sin, mask) if recompute else layer(x, cos, sin, mask)
        logits = F.linear(self.norm(x), self.embed.weight).float()
        return F.cross_entropy(logits[0, :-1], ids[0, 1:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tuner", choices=("lora", "full"))
    parser.add_argument("length", type=int)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--recompute", choices=("true", "false"), default="false")
    parser.add_argument("--threads", type=int, default=2)
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    model = Model()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    torch.set_default_dtype(torch.float32)
    if o.tuner == "lora":
        model.requires_grad_(False)
        for layer in model.layers:
            for name in ("q", "k", "v", "o", "gate", "up", "down"):
                setattr(layer, name, LoraLinear(getattr(layer, name)))
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=1e-5, weight_decay=0.1)
    steps, best, least_cpu = [], math.inf, math.inf
    for step in range(o.steps):
        ids = torch.randint(VOCAB, (1, o.length))
        start, cpu = time.perf_counter(), time.process_time()
        loss = model.loss(ids, o.recompute == "true")
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end = time.perf_counter()
        best, least_cpu = min(best, end - start), min(least_cpu, time.process_time() - cpu)
        steps.append({"loss": loss.item(), "forward_s": forward - start, "backward_s": backward - forward,
                      "optimizer_s": end - backward})
    print(json.dumps({"peer": "torch " + torch.__version__, "tuner": o.tuner, "length": o.length, "recompute": o.recompute,
                      "tokens_per_s": o.length / best, "cpu_s_per_step": least_cpu,
                      "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20), "steps": steps}, indent=1))


main()
