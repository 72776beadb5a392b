# SPDX-License-Identifier: Apache-2.0
"""The numbers of an encoder: a tiny classifier of random weights and what transformers computes with it.

  make_encoder_numbers.py CONFIG.json tests/data/models/NAME [--seed N]

CONFIG.json is a config.json with small sizes (two to four layers, hidden 32 to 64, 160 tokens); what it leaves out takes the family's
defaults. Written are checkpoint/, golden.json and golden.safetensors. Weights are rounded to bfloat16, and all is computed in float32,
without dropout. Texts are single ones and, where the tokenizer tells the model of them, pairs.

With --words the checkpoint labels each token, and its logits are all that is kept: tests/data/words/NAME."""
import argparse
import json
import os
import shutil
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

LENGTHS, LABELS = (17, 9, 1, 12), (2, 0, 1, 2)
TELLS_APART = {"bert", "nomic_bert"}  # their tokenizers give token_type_ids
LARGEST_GRADIENT = 1200  # numbers in a gradient that is kept whole; of larger ones the norm is kept


def random_weights(model):
    """Rows keep the size of what they read; norms and biases differ from what a missing one would mean."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            norm = "norm" in name.lower() or name.endswith("emb_ln.weight")
            if p.dim() > 1:
                p.copy_(torch.randn_like(p) * 0.9 / p.shape[-1] ** 0.5)
            elif norm and p.mean().abs() > 0.5:
                p.copy_(1 + 0.2 * torch.randn_like(p))
            else:
                p.copy_(0.1 * torch.randn_like(p))
            p.copy_(p.to(torch.bfloat16).float())


def on_disk(model, values):
    """`values` in place of the parameters, under the names of the files."""
    kept = {name: p.data for name, p in model.named_parameters()}
    for name, p in model.named_parameters():
        p.data = values[name]
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        out = load_file(os.path.join(folder, "model.safetensors"))
    for name, p in model.named_parameters():
        p.data = kept[name]
    return out


def poolings(x):
    weights = torch.arange(1, len(x) + 1, dtype=x.dtype)
    return {"cls": x[0], "last": x[-1], "mean": x.mean(0), "max": x.amax(0), "sqrt": x.sum(0) / len(x) ** 0.5,
            "weighted": (x * weights[:, None]).sum(0) / weights.sum()}


def gradients(model, loss, tensors, which):
    model.zero_grad(set_to_none=True)
    loss.backward(retain_graph=True)
    reached = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    all_ = {n: reached.get(n, torch.zeros_like(p)) for n, p in model.named_parameters()}
    norms = {n: g.norm().item() for n, g in sorted(on_disk(model, all_).items()) if g.norm().item() > 0}
    for name, g in on_disk(model, all_).items():
        if name in norms and g.numel() <= LARGEST_GRADIENT:
            tensors[f"grad/{which}/{name}"] = g.float().contiguous()
    return norms


def words(args, config):
    model = AutoModelForTokenClassification.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    random_weights(model)
    rows = [torch.randint(3, config.vocab_size, (length,)) for length in LENGTHS]
    logits = torch.cat([model(input_ids=row[None]).logits[0] for row in rows])
    shutil.rmtree(args.folder, ignore_errors=True)
    os.makedirs(args.folder)
    model.to(torch.bfloat16).save_pretrained(os.path.join(args.folder, "checkpoint"))
    save_file({"input_ids": torch.cat(rows), "lengths": torch.tensor(LENGTHS), "logits": logits.detach().contiguous()},
              os.path.join(args.folder, "golden.safetensors"))
    print(f"{type(model).__name__}: logits of spread {logits.std().item():.3g}")


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("config")
    ask.add_argument("folder")
    ask.add_argument("--seed", type=int, default=7)
    ask.add_argument("--words", action="store_true")
    args = ask.parse_args()
    wanted = json.load(open(args.config, encoding="utf-8"))
    torch.manual_seed(args.seed)
    config = CONFIG_MAPPING[wanted["model_type"]](num_labels=3, **{k: v for k, v in wanted.items() if k != "model_type"})
    if args.words:
        return words(args, config)
    model = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    random_weights(model)
    tensors, rows, types = {}, [], []
    for i, length in enumerate(LENGTHS):
        rows.append(torch.randint(3, config.vocab_size, (length,)))
        second = length // 2 if i % 2 and wanted["model_type"] in TELLS_APART else 0
        types.append(second)
    logits, states, inputs, vectors = [], [], [], []
    for row, second in zip(rows, types):  # each alone, so that no padding and no neighbour takes part
        more = {"token_type_ids": (torch.arange(len(row)) >= second).long()[None]} if second else {}
        out = model(input_ids=row[None], output_hidden_states=True, **more)
        logits.append(out.logits[0])
        base = getattr(model, model.base_model_prefix)
        states.append(base(input_ids=row[None], **more).last_hidden_state[0])
        inputs.append([h[0] for h in out.hidden_states[:-1]])
        vectors.append(poolings(states[-1]))
    flat = torch.cat(states)
    weights = torch.randn_like(flat)
    numbers = {"name": wanted["model_type"], "seed": args.seed, "architecture": type(model).__name__, "lengths": list(LENGTHS),
               "second": types, "labels": list(LABELS), "transformers": transformers.__version__}
    loss = torch.nn.functional.cross_entropy(torch.stack(logits), torch.tensor(LABELS))
    numbers["loss"] = loss.item()
    numbers["grad"] = {"labels": gradients(model, loss, tensors, "labels"),
                       "states": gradients(model, (flat * weights).sum(), tensors, "states")}
    tensors |= {"input_ids": torch.cat(rows), "hidden": flat, "weights": weights, "logits": torch.stack(logits)}
    for i in range(len(inputs[0])):
        tensors[f"hidden_states.{i}"] = torch.cat([row[i] for row in inputs])
    for name in vectors[0]:
        tensors["vectors/" + name] = torch.stack([v[name] for v in vectors])
    spread = tensors["logits"].std().item()
    print(f"{type(model).__name__}: {sum(p.numel() for p in model.parameters())} parameters, logits of spread {spread:.3g}")
    if not 0.05 < spread < 30 or not torch.isfinite(tensors["logits"]).all():
        raise SystemExit("Not kept: the logits are too small or too large; another --seed, or other sizes")
    shutil.rmtree(args.folder, ignore_errors=True)
    checkpoint = os.path.join(args.folder, "checkpoint")
    os.makedirs(args.folder)
    model.to(torch.bfloat16).save_pretrained(checkpoint)
    save_file({n: t.detach().contiguous() for n, t in tensors.items()}, os.path.join(args.folder, "golden.safetensors"))
    with open(os.path.join(args.folder, "golden.json"), "w", encoding="utf-8") as file:
        json.dump(numbers, file, indent=1, sort_keys=True)


main()
