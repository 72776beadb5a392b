"""Logits of Apus beside transformers' in f32: python3 compare_logits.py MODEL SCRATCH (apus on PATH)"""
import json
import pathlib
import subprocess
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

model, scratch = sys.argv[1], pathlib.Path(sys.argv[2])
ids = torch.randint(0, 151000, (1, 700), generator=torch.Generator().manual_seed(1))
rows = scratch / "ids.jsonl"
rows.write_text(json.dumps({"input_ids": ids[0].tolist()}))
original = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, device_map={"": 0})
with torch.no_grad():
    wanted = original(ids.cuda()).logits[0].float().cpu()
    narrow = original.to(torch.bfloat16)(ids.cuda()).logits[0].float().cpu()


def show(name, logits):
    far = (logits - wanted).norm() / wanted.norm()
    same = (logits.argmax(-1) == wanted.argmax(-1)).float().mean()
    print(f"{name}: relative {far:.2e}, at most {(logits - wanted).abs().max():.2e}, same best word {100 * same:.1f} %")


show("transformers, bfloat16", narrow)
for dtype in ("float32", "bfloat16"):
    dump = scratch / f"{dtype}.safetensors"
    subprocess.run(["apus", "score", "--model", model, "--dataset", str(rows), "--dump_logits", str(dump),
                    "--torch_dtype", dtype, "--device", "cuda"], check=True, stdout=subprocess.DEVNULL)
    held = load_file(dump)
    show(f"apus, {dtype}", held[[k for k in held if k.startswith("logits")][0]].float())
