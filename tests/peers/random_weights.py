# SPDX-License-Identifier: Apache-2.0
"""Weights of tiny checkpoints."""
import torch


def random_weights(model):
    """Rows keep the size of what they read; norms and biases differ from what a missing one would mean."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1 and "position" not in name:
                p.copy_(torch.randn_like(p) * 0.9 / (p[0].numel() if p.dim() > 2 else p.shape[-1]) ** 0.5)
            elif ("norm" in name or ".ln." in name) and name.endswith("weight") and p.mean().abs() > 0.5:
                p.copy_(1 + 0.2 * torch.randn_like(p))
            else:
                p.copy_((0.1 if p.dim() == 1 else 0.5) * torch.randn_like(p))
        for name, b in model.named_buffers():  # of Gemma 4
            if name.endswith(("_min", "_max")):
                b.copy_(torch.tensor(1.5 if name.endswith("max") else -1.25))
            if name.endswith(("layer_scalar", "std_scale")):
                b.copy_((0.9 + 0.1 * torch.randn_like(b)).to(torch.bfloat16).float())
            if name.endswith("std_bias"):
                b.copy_(torch.randn_like(b).to(torch.bfloat16).float())
        for p in model.parameters():
            p.copy_(p.to(torch.bfloat16).float())
