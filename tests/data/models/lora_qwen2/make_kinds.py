# SPDX-License-Identifier: Apache-2.0
# Adapters of other kinds than LoRA, made and run by PEFT and ms-swift: python3 make_kinds.py [KIND ...] (needs torch,
# transformers, peft; ms-swift for adapter). Writes adapter_KIND beside it, and their logits, losses and gradients as kinds.json
# and kinds.safetensors. AdaLoRA's file holds the ranks that its pattern leaves; MiSS has a rank that divides no layer.
import json
import os
import shutil
import sys

import torch
from peft import (AdaLoraConfig, BOFTConfig, FourierFTConfig, IA3Config, LNTuningConfig, MissConfig, PromptTuningConfig,
                  VeraConfig, get_peft_model)
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = 16  # of the batch, whose logits are kept
KINDS = ["adalora", "miss", "boft", "ia3", "fourierft", "vera", "ln_tuning", "prompt_tuning", "adapter"]


def wrapped(base, kind):
    if kind != "adapter":
        return get_peft_model(base, config_of(kind))
    from swift.tuners import AdapterConfig, Swift

    base.requires_grad_(False)
    return Swift.prepare_model(base, AdapterConfig(dim=64, target_modules=r"model\.layers\.\d+\.mlp", hidden_pos=0,
                                                   adapter_length=8, act_layer="gelu"))


def config_of(kind):
    common = dict(target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    if kind == "adalora":
        return AdaLoraConfig(init_r=4, target_r=2, lora_alpha=8, lora_dropout=0.0, total_step=10, **common)
    if kind == "ln_tuning":
        return LNTuningConfig(target_modules=["input_layernorm", "norm"], task_type="CAUSAL_LM")
    if kind == "prompt_tuning":
        return PromptTuningConfig(num_virtual_tokens=5, task_type="CAUSAL_LM")
    if kind == "miss":
        return MissConfig(r=6, init_weights=False, **common)
    if kind == "ia3":
        return IA3Config(feedforward_modules=".*mlp.*", **common)
    if kind == "fourierft":
        return FourierFTConfig(n_frequency=50, scaling=40.0, **common)
    if kind == "vera":
        return VeraConfig(r=6, projection_prng_key=3, **common)
    return BOFTConfig(boft_block_size=4, init_weights=False, **common)


def randomise(model, kind):
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.copy_(torch.randn(p.shape) * 0.5)
            elif "ln_tuning" in name:
                p.add_(torch.randn(p.shape) * 0.3)
            elif "adapter_" in name:
                p.copy_(torch.randn(p.shape) * 0.1)
            elif "miss_" in name:
                p.copy_(torch.randn(p.shape) * 0.05)
            elif "vera_lambda" in name:
                p.copy_(torch.randn(p.shape) * 0.5)
            elif "ia3_" in name:
                p.copy_(1 + torch.randn(p.shape) * 0.3)
    if kind != "adalora":
        return
    pattern = {}
    for i, (name, p) in enumerate(n for n in model.named_parameters() if "lora_E" in n[0]):
        keep = [(i + j) % 4 != 0 and j <= i for j in range(4)]
        with torch.no_grad():
            p.masked_fill_(~torch.tensor(keep).unsqueeze(1), 0)
        pattern[name.replace("base_model.model.", "").replace(".default", "")] = keep
    model.peft_config["default"].rank_pattern = pattern


# As PEFT leaves masked ranks out of its file.
def left(name, grad, pattern):
    keep = pattern.get(name.split(".lora_")[0].replace("base_model.model.", "") + ".lora_E")
    return grad if keep is None else grad[:, keep] if "lora_B" in name else grad[keep]


def main():
    batch = load_file(os.path.join(HERE, "golden.safetensors"))
    ids, mask, labels = (batch["right/" + n] for n in ("input_ids", "attention_mask", "labels"))
    numbers, tensors = {}, {}
    if len(sys.argv) > 1:  # the others stay as they are
        with open(os.path.join(HERE, "kinds.json")) as f:
            numbers = json.load(f)
        tensors = load_file(os.path.join(HERE, "kinds.safetensors"))
    for kind in sys.argv[1:] or KINDS:
        torch.manual_seed(7)
        base = AutoModelForCausalLM.from_pretrained(os.path.join(HERE, "checkpoint"), dtype=torch.float32)
        model = wrapped(base, kind)
        randomise(model, kind)
        # Without AdaLoRA's own penalty, which is added to the loss of a whole model.
        inner = model if kind in ("adapter", "prompt_tuning") else model.base_model.model
        logits = inner(input_ids=ids, attention_mask=mask).logits[:, -ids.shape[1]:]  # without those of a trained prompt
        flat = logits[mask.bool()]
        shifted = torch.full_like(labels, -100)
        shifted[:, :-1] = labels[:, 1:]
        loss = torch.nn.functional.cross_entropy(flat, shifted[mask.bool()], ignore_index=-100)
        loss.backward()
        tensors[kind + "/logits"] = flat[:TOKENS].detach().contiguous()
        norms, pattern = {}, {}
        if kind != "adapter":
            pattern = getattr(model.peft_config["default"], "rank_pattern", None) or {}
        for name, p in model.named_parameters():
            if p.grad is not None:
                if kind == "prompt_tuning":
                    name = "prompt_embeddings"
                name = name.replace(".default", "") if kind != "adapter" else name.replace("base_model.", "")
                grad = left(name, p.grad, pattern)
                norms[name] = grad.norm().item()
                if "layers.1.self_attn.v_proj" in name or kind == "prompt_tuning":
                    tensors[kind + "/grad/" + name] = grad.contiguous()
        if kind != "adapter":
            model.peft_config["default"].base_model_name_or_path = "checkpoint"
        numbers[kind] = {"dir": "adapter_" + kind, "loss": loss.item(), "grad_norms": norms}
        folder = os.path.join(HERE, "adapter_" + kind)
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        os.remove(os.path.join(folder, "README.md"))
    with open(os.path.join(HERE, "kinds.json"), "w") as f:
        json.dump(numbers, f, indent=1)
    save_file(tensors, os.path.join(HERE, "kinds.safetensors"))


main()
