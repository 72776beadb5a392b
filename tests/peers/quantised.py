#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantised checkpoints that `apus export --quant_method` writes, read by transformers with bitsandbytes: the same
log-probabilities of every token, f32 on the processor. FP8 is read by torch.

Usage: quantised.py APUS GOLDEN FOLDER
"""
import os
import shutil
import sys

import checkpoints
import tiny

CASES = [("nf4", ["--quant_method", "bnb", "--quant_bits", "4"]),
         ("nf4_single", ["--quant_method", "bnb", "--quant_bits", "4", "--bnb_4bit_use_double_quant", "false"]),
         ("fp4", ["--quant_method", "bnb", "--quant_bits", "4", "--bnb_4bit_quant_type", "fp4"]),
         ("int8", ["--quant_method", "bnb", "--quant_bits", "8"]),
         ("fp8", ["--quant_method", "fp8"])]
TOLERANCE = 2e-3  # bitsandbytes rounds activations of int8 and scales of 4 bits on its way


def load(path, case, base):
    """FP8 through torch's own type and safetensors: transformers 5 reads it on a GPU alone."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM
    if case != "fp8":
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, device_map="cpu")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    stored = load_file(os.path.join(path, "model.safetensors"))
    plain = {}
    for name, tensor in stored.items():
        scale = stored.get(name + "_scale_inv")
        if name.endswith("_scale_inv"):
            continue
        plain[name] = tensor.float()
        if scale is not None:
            wide = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
            plain[name] = plain[name] * wide[: tensor.shape[0], : tensor.shape[1]]
    model.load_state_dict(plain, strict=False)
    return model


def main():
    apus, golden, folder = sys.argv[1:4]
    tokenizer = os.path.join(golden, "models/qwen2/checkpoint")
    base = tiny.make(apus, os.path.join(folder, "base"), "qwen2", tokenizer if os.path.exists(
        os.path.join(tokenizer, "tokenizer.json")) else os.path.join(os.path.dirname(__file__), "../../examples/island"),
        hidden_size=128, intermediate_size=256, head_dim=32)
    good = True
    for case, flags in CASES:
        path = os.path.join(folder, case)
        shutil.rmtree(path, ignore_errors=True)
        tiny.run(apus, "export", "--model", base, "--output_dir", path, *flags)
        ours = checkpoints.our_values(checkpoints.score(apus, folder, path))
        theirs = checkpoints.their_values(load(path, case, base))
        good &= tiny.compare(case, ours, theirs, 0.05 if case == "int8" else TOLERANCE)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
