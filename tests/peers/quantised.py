#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantised checkpoints that `apus export --quant_method` writes, read by transformers with bitsandbytes: the same
log-probabilities of every token, f32 on the processor. FP8 is read by torch, GPTQ and AWQ by a few lines of their own.

Usage: quantised.py APUS GOLDEN FOLDER
"""
import json
import os
import shutil
import sys

import checkpoints
import tiny

ISLAND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/island")
CALIBRATED = ["--dataset", os.path.join(ISLAND, "texts.jsonl"), "--quant_n_samples", "64", "--max_length", "128",
              "--group_size", "32"]
CASES = [("nf4", ["--quant_method", "bnb", "--quant_bits", "4"]),
         ("nf4_single", ["--quant_method", "bnb", "--quant_bits", "4", "--bnb_4bit_use_double_quant", "false"]),
         ("fp4", ["--quant_method", "bnb", "--quant_bits", "4", "--bnb_4bit_quant_type", "fp4"]),
         ("int8", ["--quant_method", "bnb", "--quant_bits", "8"]),
         ("fp8", ["--quant_method", "fp8"]),
         ("gptq", CALIBRATED + ["--quant_method", "gptq", "--quant_bits", "4"]),
         ("gptq3", CALIBRATED + ["--quant_method", "gptq", "--quant_bits", "3", "--desc_act", "true"]),
         ("gptq_v2", CALIBRATED + ["--quant_method", "gptq_v2", "--quant_bits", "8"]),
         ("awq", CALIBRATED + ["--quant_method", "awq", "--quant_bits", "4"])]
TOLERANCE = 2e-3  # bitsandbytes rounds activations of int8 and scales of 4 bits on its way


def streams(words, bits):
    """[n, m] int32 to [n * 32 / bits, m]: codes one behind the other down each column, from the lowest bit."""
    import numpy
    wide = words.numpy().view(numpy.uint32)
    flat = ((wide[:, None, :] >> numpy.arange(32, dtype=numpy.uint32)[None, :, None]) & 1).reshape(-1, wide.shape[1])
    flat = flat.reshape(-1, bits, wide.shape[1])
    return (flat << numpy.arange(bits, dtype=numpy.uint32)[None, :, None]).sum(1).astype("float32")


def awq_codes(words):
    """[n, m] int32 to [n, 8 m]."""
    import numpy
    wide = words.numpy().view(numpy.uint32)
    shifts = 4 * numpy.array([0, 4, 1, 5, 2, 6, 3, 7], dtype=numpy.uint32)
    return ((wide[:, :, None] >> shifts) & 15).reshape(wide.shape[0], -1).astype("float32")


def unpacked(stored, config):
    """Plain tensors of a GPTQ or AWQ checkpoint."""
    import torch
    plain, bits, group = {}, config["bits"], config["group_size"]
    for name, tensor in stored.items():
        layer, piece = name.rsplit(".", 1)
        if piece in ("qzeros", "scales", "g_idx"):
            continue
        if piece != "qweight":
            plain[name] = tensor.float()
            continue
        scales, zeros = stored[layer + ".scales"].float().numpy(), stored[layer + ".qzeros"]
        if config["quant_method"] == "awq":
            codes, zeros = awq_codes(tensor), awq_codes(zeros)
            groups = [i // group for i in range(codes.shape[0])]
        else:
            codes, zeros = streams(tensor, bits), streams(zeros.T.contiguous(), bits).T
            groups = stored[layer + ".g_idx"].numpy()
            if config["checkpoint_format"] == "gptq":
                zeros = (zeros + 1) % 2**bits
        plain[layer + ".weight"] = torch.from_numpy((scales[groups] * (codes - zeros[groups])).T.copy())
    return plain


def load(path, case, base):
    """FP8 through torch's own type and safetensors: transformers 5 reads it on a GPU alone."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM
    if case.startswith("gptq") or case == "awq":
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        with open(os.path.join(path, "config.json")) as file:
            config = json.load(file)["quantization_config"]
        plain = unpacked(load_file(os.path.join(path, "model.safetensors")), config)
        assert not model.load_state_dict(plain, strict=False).unexpected_keys
        return model
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
