#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes trajectories.json: runs of a tiny Qwen2 in f64 by plain PyTorch, one for each optimizer, schedule and loss that the
golden trajectories leave out. Weights and batches are those of tests/data/models/{train,lora}_qwen2.

Debian: apt-get install python3-torch        Usage: make_trajectories.py > trajectories.json
"""
import json
import math
import os
import struct
import sys

import torch

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models")
EPS, THETA, HEADS, KV_HEADS = 1e-6, 1e6, 4, 2


def read(path):
    types = {"BF16": torch.bfloat16, "F32": torch.float32, "I64": torch.int64, "I32": torch.int32, "F64": torch.float64}
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = bytearray(f.read())
    out = {}
    for name, e in head.items():
        if name != "__metadata__" and e["dtype"] in types:
            begin, end = e["data_offsets"]
            t = torch.frombuffer(data[begin:end], dtype=types[e["dtype"]]) if end > begin else torch.empty(0)
            out[name] = t.reshape(e["shape"]).clone()
    return out


class Linear:
    """x W' + b, with the factors of PEFT's LoRA, rsLoRA or DoRA when there are any."""

    def __init__(self, p, name, factors, config):
        self.w, self.b = p[name + ".weight"], p.get(name + ".bias")
        at = "base_model.model." + name
        self.a, self.up = factors.get(at + ".lora_A.weight"), factors.get(at + ".lora_B.weight")
        self.size = factors.get(at + ".lora_magnitude_vector")
        if self.a is not None:
            self.scale = config["lora_alpha"] / (math.sqrt(config["r"]) if config["use_rslora"] else config["r"])

    def __call__(self, x):
        y = x @ self.w.T
        if self.a is not None:
            low = (x @ self.a.T) @ self.up.T * self.scale
            if self.size is None:
                y = y + low
            else:
                y = (y + low) * (self.size / (self.w + self.scale * self.up @ self.a).norm(dim=1).detach())
        return y if self.b is None else y + self.b


def norm(x, w):
    return w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS))


def logits_of(p, ids, factors, config):
    x = p["model.embed_tokens.weight"][ids]
    length, head = len(ids), x.shape[1] // HEADS
    angle = torch.outer(torch.arange(length, dtype=x.dtype), THETA ** (-torch.arange(0, head, 2, dtype=x.dtype) / head))
    cos, sin = torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()
    turned = lambda t: t * cos + torch.cat((-t[..., head // 2:], t[..., :head // 2]), -1) * sin
    mask = torch.full((length, length), -math.inf, dtype=x.dtype).triu(1)
    i = 0
    while f"model.layers.{i}.input_layernorm.weight" in p:
        at = f"model.layers.{i}."
        lin = lambda name: Linear(p, at + name, factors, config)
        y = norm(x, p[at + "input_layernorm.weight"])
        split = lambda t, heads: t.view(length, heads, head).transpose(0, 1)
        q, k = (turned(split(lin(f"self_attn.{n}_proj")(y), h)) for n, h in (("q", HEADS), ("k", KV_HEADS)))
        v = split(lin("self_attn.v_proj")(y), KV_HEADS)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 0) for t in (k, v))
        share = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(head) + mask, -1)
        x = x + lin("self_attn.o_proj")((share @ v).transpose(0, 1).reshape(length, -1))
        y = norm(x, p[at + "post_attention_layernorm.weight"])
        x = x + lin("mlp.down_proj")(torch.nn.functional.silu(lin("mlp.gate_proj")(y)) * lin("mlp.up_proj")(y))
        i += 1
    return norm(x, p["model.norm.weight"]) @ p["model.embed_tokens.weight"].T


def loss_of(p, batch, run, factors, config):
    total, count = 0, 0
    for ids, mask, labels in zip(*batch):
        at = mask.nonzero().squeeze(1)
        ids, labels = ids[at], labels[at]
        learnt = labels[1:] >= 0
        logp = torch.log_softmax(logits_of(p, ids, factors, config)[:-1][learnt], -1)
        nll = -logp.gather(1, labels[1:][learnt].unsqueeze(1)).squeeze(1)
        smooth = run.get("label_smoothing", 0)
        each = (1 - smooth) * nll - smooth * logp.mean(-1)
        if run.get("dft"):
            each = each * torch.exp(-nll).detach()
        total, count = total + each.sum(), count + int(learnt.sum())
    return total / count


class Adamw:
    def __init__(self, run):
        self.betas, self.eps = run["betas"], run["eps"]

    def step(self, p, g, s, lr, decay, t):
        b1, b2 = self.betas
        p.mul_(1 - lr * decay)
        s.setdefault("m", torch.zeros_like(p)).lerp_(g, 1 - b1)
        s.setdefault("v", torch.zeros_like(p)).mul_(b2).add_(g * g, alpha=1 - b2)
        p.sub_(lr * (s["m"] / (1 - b1 ** t)) / ((s["v"] / (1 - b2 ** t)).sqrt() + self.eps))


class Sgd:  # torch.optim.SGD
    def __init__(self, run):
        a = run.get("arguments", {})
        self.momentum, self.dampening = float(a.get("momentum", 0)), float(a.get("dampening", 0))
        self.nesterov = a.get("nesterov") == "true"

    def step(self, p, g, s, lr, decay, t):
        g = g + decay * p
        if self.momentum:
            s["b"] = g.clone() if "b" not in s else self.momentum * s["b"] + (1 - self.dampening) * g
            g = g + self.momentum * s["b"] if self.nesterov else s["b"]
        p.sub_(lr * g)


class Adafactor:  # transformers.Adafactor with relative_step=False, as the Trainer makes it
    def __init__(self, run):
        a = run.get("arguments", {})
        self.scale, self.beta1 = a.get("scale_parameter") == "true", float(a.get("beta1", 0))

    def step(self, p, g, s, lr, decay, t):
        rms = lambda x: float(x.pow(2).mean().sqrt())
        if self.scale:
            lr = lr * max(1e-3, rms(p))
        beta2, square = 1 - t ** -0.8, g * g + 1e-30
        if g.dim() > 1:
            row = s.setdefault("r", torch.zeros(g.shape[0], dtype=g.dtype)).mul_(beta2).add_(square.mean(1), alpha=1 - beta2)
            col = s.setdefault("c", torch.zeros(g.shape[1], dtype=g.dtype)).mul_(beta2).add_(square.mean(0), alpha=1 - beta2)
            u = torch.outer((row / row.mean()).rsqrt(), col.rsqrt()) * g
        else:
            u = s.setdefault("v", torch.zeros_like(p)).mul_(beta2).add_(square, alpha=1 - beta2).rsqrt() * g
        u = u / max(1.0, rms(u)) * lr
        if self.beta1:
            u = s.setdefault("m", torch.zeros_like(p)).mul_(self.beta1).add_(u, alpha=1 - self.beta1).clone()
        p.mul_(1 - decay * lr).sub_(u)


class Muon:  # Moonlight's, the Newton-Schulz steps in full precision
    def __init__(self, run):
        self.adamw = Adamw(run)

    def step(self, p, g, s, lr, decay, t):
        if p.dim() < 2 or s["name"].startswith("model.embed"):
            return self.adamw.step(p, g, s, lr, decay, t)
        s["b"] = 0.95 * s["b"] + g if "b" in s else g.clone()
        x = g + 0.95 * s["b"]
        turned = x.shape[0] > x.shape[1]
        x = x.T if turned else x
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
        p.mul_(1 - lr * decay).sub_(lr * 0.2 * math.sqrt(max(p.shape)) * (x.T if turned else x))


def factor(run, step):  # transformers' schedules, at steps from 0
    kind, warm, total, a = run["schedule"], run["warmup_steps"], run["total_steps"], run.get("schedule_kwargs", {})
    if kind == "warmup_stable_decay":
        down, least = a["num_decay_steps"], a["min_lr_ratio"]
        if step < warm:
            return step / warm * (1 - least) + least
        if step < total - down:
            return 1.0
        return (0.5 * (1 + math.cos(math.pi * (step - total + down) / down))) * (1 - least) + least
    if step < warm:
        return step / warm
    part = (step - warm) / (total - warm)
    if kind == "linear":
        return 1 - part
    if kind == "constant_with_warmup":
        return 1.0
    if kind == "inverse_sqrt":
        return 1 / math.sqrt((step + warm - warm) / warm)
    if kind == "cosine_with_restarts":
        return 0.5 * (1 + math.cos(math.pi * (a["num_cycles"] * part % 1)))
    if kind == "cosine_with_min_lr":
        return 0.5 * (1 + math.cos(math.pi * part)) * (1 - a["min_lr_rate"]) + a["min_lr_rate"]
    if kind == "polynomial":
        return ((run["lr"] - a["lr_end"]) * (1 - part) ** a["power"] + a["lr_end"]) / run["lr"]
    return 0.5 * (1 + math.cos(math.pi * part))


def decay_of(name, run):
    plain = any(part in name for part in ("bias", "norm"))
    return 0 if plain and "lora_" not in name else run["weight_decay"]


def lr_of(name, tensor, run):
    ratio = run.get("lorap_lr_ratio")
    return run["lr"] * (ratio if ratio and ("lora_B" in name or tensor.dim() == 1) else 1)


def trajectory(run):
    case = os.path.join(MODELS, run["model"])
    golden = read(os.path.join(case, "golden.safetensors"))
    p = {n: t.double() for n, t in read(os.path.join(case, "checkpoint", "model.safetensors")).items()}
    factors, config, prefix = {}, {}, ""
    if "adapter" in run:
        folder = os.path.join(case, run["adapter"])
        factors = {n: t.double() for n, t in read(os.path.join(folder, "adapter_model.safetensors")).items()}
        config, prefix = json.load(open(os.path.join(folder, "adapter_config.json"))), "train/"
    trained = factors or p
    for t in trained.values():
        t.requires_grad_()
    optimizer = {"sgd": Sgd, "adafactor": Adafactor, "muon": Muon}.get(run["optim"], Adamw)(run)
    states = {n: {"name": n} for n in trained}
    steps = []
    for step in range(run["total_steps"]):
        batch = [golden[f"{prefix}batch{step}/{part}"] for part in ("input_ids", "attention_mask", "labels")]
        loss = loss_of(p, batch, run, factors, config)
        grads = torch.autograd.grad(loss, list(trained.values()))
        size = float(torch.sqrt(sum(g.pow(2).sum() for g in grads)))
        clip = min(1.0, run["max_grad_norm"] / (size + 1e-6)) if run["max_grad_norm"] else 1.0
        at = factor(run, step)
        with torch.no_grad():
            for (name, t), g in zip(trained.items(), grads):
                optimizer.step(t, g * clip, states[name], lr_of(name, t, run) * at, decay_of(name, run), step + 1)
        steps.append({"loss": float(loss), "lr": run["lr"] * at, "grad_norm": size})
    return steps


COMMON = {"model": "train_qwen2", "optim": "adamw_torch", "lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
          "max_grad_norm": 1.0, "total_steps": 10, "warmup_steps": 2, "schedule": "cosine"}
LORA = {"model": "lora_qwen2", "lr": 2e-3}
RUNS = {
    "sgd": {"optim": "sgd", "lr": 0.05, "schedule": "linear"},
    "sgd_momentum": {"optim": "sgd", "lr": 0.02, "arguments": {"momentum": "0.9", "dampening": "0.1"},
                     "schedule": "constant_with_warmup", "warmup_steps": 3},
    "sgd_nesterov": {"optim": "sgd", "lr": 0.01, "arguments": {"momentum": "0.9", "nesterov": "true"}, "max_grad_norm": 0,
                     "schedule": "inverse_sqrt", "warmup_steps": 3},
    "adafactor": {"optim": "adafactor", "schedule": "polynomial", "schedule_kwargs": {"lr_end": 1e-5, "power": 2}},
    "adafactor_scaled": {"optim": "adafactor", "lr": 1e-2, "arguments": {"scale_parameter": "true", "beta1": "0.9"},
                         "schedule": "cosine_with_restarts", "schedule_kwargs": {"num_cycles": 2}},
    "muon": {"optim": "muon", "schedule": "cosine_with_min_lr", "schedule_kwargs": {"min_lr_rate": 0.1}},
    "label_smoothing": {"label_smoothing": 0.1, "schedule": "warmup_stable_decay",
                        "schedule_kwargs": {"num_decay_steps": 4, "min_lr_ratio": 0.05}},
    "dft": {"dft": True, "max_grad_norm": 0.05, "betas": [0.8, 0.99], "eps": 1e-6},
    "dft_smoothed": {"dft": True, "label_smoothing": 0.2, "weight_decay": 0, "warmup_steps": 0},
    "rslora": {**LORA, "adapter": "adapter_rslora"},
    "dora": {**LORA, "adapter": "adapter_dora", "schedule": "linear"},
    "lora_plus": {**LORA, "adapter": "adapter_train_init", "lorap_lr_ratio": 4},
    "dora_plus_sgd": {**LORA, "adapter": "adapter_dora", "lorap_lr_ratio": 3, "optim": "sgd", "lr": 0.01},
}
written = {}
for name in sys.argv[1:] or RUNS:
    run = {**COMMON, **RUNS[name]}
    written[name] = {"run": run, "steps": trajectory(run)}
json.dump(written, sys.stdout, indent=1)
print()
