# SPDX-License-Identifier: Apache-2.0
"""The numbers of a family: a tiny checkpoint of random weights and what transformers computes with it, as the tests of a family read them.

  make_numbers.py CONFIG.json tests/data/models/NAME [--seed N]

CONFIG.json is a config.json with small sizes (two to four layers, hidden 32 to 64, 160 tokens); what it leaves out takes the family's
defaults. Written are checkpoint/, golden.json and golden.safetensors. Weights are rounded to bfloat16, and all is computed in float32."""
import argparse
import json
import os
import shutil
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ling import make_first_ling, make_ling
from minimax import make_minimax

# Classes that transformers does not know.
OWN = {"BailingMoeForCausalLM": make_first_ling, "BailingMoeV2_5ForCausalLM": make_ling, "MiniMaxText01ForCausalLM": make_minimax, "MiniMaxM1ForCausalLM": make_minimax}
LENGTHS = {"right": (17, 9), "packed": (8, 4, 9), "gen": (7, 4)}
NEW_TOKENS = 12
LARGEST_GRADIENT = 1200  # numbers in a gradient that is kept whole; of larger ones the norm is kept


def random_weights(model):
    """Rows keep the size of what they read; norms and biases differ from what a missing one would mean."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1:
                p.copy_(torch.randn_like(p) * 0.9 / p.shape[-1] ** 0.5)
            elif "norm" in name and p.mean().abs() > 0.5:
                p.copy_(1 + 0.2 * torch.randn_like(p))
            elif name.endswith("scale"):
                p.copy_(1 + 0.2 * torch.randn_like(p))
            elif "bias" in name or name.endswith("base") or "norm" in name or "sink" in name:
                p.copy_(0.1 * torch.randn_like(p))
        for name, b in model.named_buffers():
            if "correction_bias" in name:
                b.copy_((0.1 * torch.randn_like(b)).to(torch.bfloat16).float())
            if "tid2eid" in name:  # of each word different experts
                b.copy_(torch.rand(b.shape[0], model.config.n_routed_experts).argsort(-1)[:, :b.shape[1]])
            if "layer_scalar" in name:
                b.copy_((0.9 + 0.1 * torch.randn_like(b)).to(torch.bfloat16).float())
        for p in model.parameters():
            p.copy_(p.to(torch.bfloat16).float())


def on_disk(model, values=None):
    """Tensors under the names of the files; `values` stand in for the parameters when given."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {}
        if values is not None:
            for name, p in model.named_parameters():
                kept[name] = p.data
                p.data = values[name]
        model.save_pretrained(folder, safe_serialization=True)
        out = {}
        for file in sorted(os.listdir(folder)):
            if file.endswith(".safetensors"):
                out.update(load_file(os.path.join(folder, file)))
        for name, p in model.named_parameters():
            if values is not None:
                p.data = kept[name]
        return out


def run(model, rows):
    """Each row alone, so that no padding and no neighbour takes part."""
    logits, last, inputs = [], [], []
    for row in rows:
        normed = []
        hook = model.model.norm.register_forward_hook(lambda m, args, y: normed.append(y)) if hasattr(model.config, "altup_num_inputs") else None
        out = model(input_ids=torch.tensor([row]), output_hidden_states=True, use_cache=False)
        logits.append(out.logits[0])
        if hook:  # its states are [streams, rows, tokens, numbers], those behind the last layer are not made one
            hook.remove()
            last.append(normed[0][0])
            inputs.append([h[:, 0].transpose(0, 1).flatten(1) for h in out.hidden_states[:-1]])
            continue
        last.append(out.hidden_states[-1][0])
        inputs.append([h[0].flatten(1) for h in out.hidden_states[:-1]])  # streams side by side
    return logits, last, inputs


def place(rows, width, left=False):
    """Rows of [tokens, ...] in one tensor, zeros elsewhere."""
    out = torch.zeros((len(rows), width) + rows[0].shape[1:], dtype=rows[0].dtype)
    for i, row in enumerate(rows):
        out[i, (width - len(row)) if left else 0:][: len(row)] = row
    return out.contiguous()


def labels_of(rows):
    """The first third of a row is a question, which is not learnt."""
    return [torch.tensor([-100] * (len(row) // 3) + list(row[len(row) // 3:])) for row in rows]


def loss_of(logits, labels):
    count = sum(int((label[1:] != -100).sum()) for label in labels)
    total = sum(torch.nn.functional.cross_entropy(x[:-1], label[1:], ignore_index=-100, reduction="sum")
                for x, label in zip(logits, labels))
    return total / count, count


def asked(description, kind, fill, own=None):
    """The arguments, the config.json that they name, and its model with random weights. `own`: of those that transformers does not
    know, by model_type or class, what makes them of a config.json."""
    ask = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("config")
    ask.add_argument("folder")
    ask.add_argument("--seed", type=int, default=7)
    args = ask.parse_args()
    wanted = json.load(open(args.config, encoding="utf-8"))
    torch.manual_seed(args.seed)
    known = [name for name in (wanted["model_type"], *wanted.get("architectures", ())) if name in (own or {})]
    if known:
        model = own[known[0]](wanted).eval()
        fill(model)
        return args, wanted, model.config, model
    config = CONFIG_MAPPING[wanted["model_type"]](**{k: v for k, v in wanted.items() if k not in ("model_type", "architectures")})
    # Some text parts are models of their own that no Auto class knows.
    make = kind.from_config if type(config) in kind._model_mapping else getattr(transformers, wanted["architectures"][0])._from_config
    model = make(config, dtype=torch.float32, attn_implementation="eager").eval()
    fill(model)
    return args, wanted, config, model


def main():
    args, wanted, config, model = asked(__doc__, AutoModelForCausalLM, random_weights, OWN)
    vocab = config.vocab_size
    tensors, numbers = {}, {"name": wanted["model_type"], "seed": args.seed, "architecture": type(model).__name__,
                            "transformers": transformers.__version__, "cases": {}, "grad": {}, "packed_lens": list(LENGTHS["packed"])}
    rows = {which: [torch.randint(3, vocab, (n,)).tolist() for n in lengths] for which, lengths in LENGTHS.items()}
    for which in ("right", "packed"):
        model.zero_grad(set_to_none=True)
        logits, last, inputs = run(model, rows[which])
        labels = labels_of(rows[which])
        loss, count = loss_of(logits, labels)
        loss.backward()
        said = {"loss": loss.item(), "n_label_tokens": count, "loss_sum_over_100_items": loss.item() * count / 100}
        numbers["cases"][which] = said
        # A matrix that nothing reached has no gradient: its zeros are left out.
        reached = {n for n, p in model.named_parameters() if p.grad is not None}
        grads = on_disk(model, {n: p.grad if p.grad is not None else torch.zeros_like(p) for n, p in model.named_parameters()})
        buffers = {n for n, _ in model.named_buffers()}
        # Numbers beside the weights, under whatever name the file has them.
        fixed = lambda n: n in buffers or n.endswith(("correction_bias", "expert_bias", "ffn.gate.bias", "tid2eid"))
        norms = {n: g.norm().item() for n, g in sorted(grads.items()) if not fixed(n) and g.norm().item() > 0}
        assert reached and all(v == v for v in norms.values())
        numbers["grad"][which] = {"includes_router_aux_loss": False, "loss": loss.item(), "norms": norms,
                                  "total_norm": sum(v * v for v in norms.values()) ** 0.5}
        for name in norms:
            if grads[name].numel() <= LARGEST_GRADIENT:
                tensors[f"grad/{which}/{name}"] = grads[name].float().contiguous()
        ids = [torch.tensor(row) for row in rows[which]]
        detached = lambda list_: [x.detach() for x in list_]
        if which == "packed":
            tensors["packed/input_ids"] = torch.cat(ids)[None]
            tensors["packed/labels"] = torch.cat(labels)[None]
            tensors["packed/position_ids"] = torch.cat([torch.arange(len(i)) for i in ids])[None]
            tensors["packed/logits"] = torch.cat(detached(logits))[None]
            tensors["packed/last_hidden_state"] = torch.cat(detached(last))[None]
            continue
        width = max(map(len, ids))
        for side in ("right", "left"):
            left = side == "left"
            tensors[f"{side}/input_ids"] = place(ids, width, left)
            tensors[f"{side}/attention_mask"] = place([torch.ones_like(i) for i in ids], width, left)
            tensors[f"{side}/labels"] = torch.where(tensors[f"{side}/attention_mask"] > 0, place(labels, width, left), -100)
            tensors[f"{side}/logits"] = place(detached(logits), width, left)
            tensors[f"{side}/last_hidden_state"] = place(detached(last), width, left)
        # A layer of theirs may be two of ours, which read something else.
        same = len(inputs[0]) == getattr(config, "num_hidden_layers", len(inputs[0]))
        for i in range(len(inputs[0]) if same else 0):
            tensors[f"right/hidden_states.{i}"] = place([row[i].detach() for row in inputs], width)
        numbers["cases"]["left"] = said
    answers, steps, margin = [list(row) for row in rows["gen"]], [], float("inf")
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            logits = torch.stack([x[-1] for x in run(model, answers)[0]])
            best = logits.topk(2, -1)
            margin = min(margin, (best.values[:, 0] - best.values[:, 1]).min().item())
            steps.append(logits)
            for row, token in zip(answers, best.indices[:, 0].tolist()):
                row.append(token)
    prompts = [torch.tensor(row) for row in rows["gen"]]
    width = max(map(len, prompts))
    tensors["gen/input_ids"] = place(prompts, width, True)
    tensors["gen/attention_mask"] = place([torch.ones_like(i) for i in prompts], width, True)
    tensors["gen/new_ids"] = torch.tensor([row[len(p):] for row, p in zip(answers, prompts)])
    tensors["gen/step_logits"] = torch.stack(steps)
    new = [row[len(p):] for row, p in zip(answers, prompts)]
    numbers["gen"] = {"min_top2_margin": margin, "distinct_tokens_min": min(len(set(row)) for row in new)}
    spread = tensors["right/logits"].std().item()
    print(f"{type(model).__name__}: {sum(p.numel() for p in model.parameters())} parameters, logits of spread {spread:.3g}, "
          f"nearest tie {margin:.3g}, {numbers['gen']['distinct_tokens_min']} different tokens of {NEW_TOKENS}")
    if margin < 2e-3 or not 0.05 < spread < 30 or not torch.isfinite(tensors["right/logits"]).all():
        raise SystemExit("Not kept: a tie is too near, or the logits are too small or too large; another --seed, or other sizes")
    shutil.rmtree(args.folder, ignore_errors=True)
    os.makedirs(args.folder)
    checkpoint = os.path.join(args.folder, "checkpoint")
    model.to(torch.bfloat16).save_pretrained(checkpoint, safe_serialization=True)
    for name in ("generation_config.json",):
        if os.path.exists(os.path.join(checkpoint, name)):
            os.remove(os.path.join(checkpoint, name))
    save_file(tensors, os.path.join(args.folder, "golden.safetensors"))
    with open(os.path.join(args.folder, "golden.json"), "w", encoding="utf-8") as file:
        json.dump(numbers, file, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
