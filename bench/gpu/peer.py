"""transformers and PEFT on a checkpoint, on one GPU: python3 peer.py MODEL [--compiled]. One JSON object a line."""
import json
import sys
import time

import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model


def say(task, **numbers):
    print(json.dumps({"task": task, **numbers}), flush=True)


def seconds(work, times=1):
    best = 1e9
    for _ in range(times):
        torch.cuda.synchronize()
        start = time.time()
        work()
        torch.cuda.synchronize()
        best = min(best, time.time() - start)
    return best


def lora(model, length, compiled):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    tuned = get_peft_model(model, LoraConfig(r=8, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    tuned.train()
    trained = [p for p in tuned.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=True)
    forward = torch.compile(tuned) if compiled else tuned
    ids = torch.randint(0, 151000, (1, length), device="cuda")

    def step():
        forward(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    first = seconds(step)
    step()
    best = seconds(step, 4)
    say(f"lora{length}" + ("-compiled" if compiled else ""), tokens_s=length / best, ms_a_step=best * 1e3,
        peak_gib=torch.cuda.max_memory_allocated() / 2**30, first_s=first)
    tuned.unload()


def answers(model):
    prompt = torch.randint(0, 151000, (1, 128), device="cuda")

    def generate(count):
        model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, min_new_tokens=count,
                       do_sample=False, pad_token_id=0)

    generate(4)
    one, many = seconds(lambda: generate(1)), seconds(lambda: generate(33))
    say("decode1", tokens_s=32 / (many - one))
    long = torch.randint(0, 151000, (1, 4096), device="cuda")
    model(long, logits_to_keep=1, use_cache=True)
    say("prefill4096", tokens_s=4096 / seconds(lambda: model(long, logits_to_keep=1, use_cache=True), 3))


def main():
    say("versions", torch=torch.__version__, transformers=transformers.__version__, peft=peft.__version__,
        device=torch.cuda.get_device_name())
    model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16,
                                                              attn_implementation="sdpa", device_map={"": 0})
    if "--compiled" in sys.argv:
        return lora(model, 4096, True)
    with torch.no_grad():
        answers(model.eval())
    for length in (4096, 2048):
        lora(model, length, False)


main()
