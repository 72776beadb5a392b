# SPDX-License-Identifier: Apache-2.0
"""Checkpoints laid out as a model's authors have them, where transformers computes the model in a class of its own."""
import json
import os

import torch
from safetensors.torch import load_file, save_file


def write_own_files(model, wanted, names, dropped=(), joined=None):
    """`model` saves from now on under its authors' names and with their config.json; without tensors that end so. `joined`: those that
    are one matrix in the file."""
    theirs = type(model).save_pretrained

    def save_pretrained(folder, **_):
        theirs(model, folder)
        file = os.path.join(folder, "model.safetensors")
        tensors = {name: tensor for name, tensor in load_file(file).items() if not name.endswith(tuple(dropped))}
        for one, parts in (joined or {}).items():
            for first in [name for name in tensors if name.endswith(f".{parts[0]}.weight")]:
                place = first.removesuffix(f"{parts[0]}.weight")
                tensors[f"{place}{one}.weight"] = torch.cat([tensors.pop(f"{place}{part}.weight") for part in parts])
        for old, new in names:
            tensors = {name.replace(old, new): tensor for name, tensor in tensors.items()}
        save_file(tensors, file, {"format": "pt"})
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as out:
            json.dump({**wanted, "torch_dtype": "bfloat16"}, out, indent=2, sort_keys=True)
    model.save_pretrained = save_pretrained
    return model


def slopes(heads):
    """How fast heads forget. Of a power of two heads, the powers of 2^(-8 / heads); of those beyond, every second of twice as many."""
    whole = 1 << (heads.bit_length() - 1)
    return [2 ** (-8 * (i + 1) / whole) for i in range(whole)] + [2 ** (-8 * (2 * i + 1) / (2 * whole)) for i in range(heads - whole)]
