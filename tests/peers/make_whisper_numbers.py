# SPDX-License-Identifier: Apache-2.0
"""The numbers of Whisper: a tiny checkpoint of random weights and what transformers computes with it.

  make_whisper_numbers.py CONFIG.json tests/data/models/whisper [--seed N]

As make_hearing_numbers.py has it for decoders that hear: every row begins with the token that stands for its sound, whose spectrogram
is random."""
import json
import os
import shutil

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForSpeechSeq2Seq

from make_numbers import NEW_TOKENS, asked, labels_of, loss_of, on_disk, place
from random_weights import random_weights

LENGTHS = (11, 6)
LARGEST_GRADIENT = 600  # numbers in a gradient that is kept whole; of larger ones the norm is kept


def run(model, row, sound):
    last = []
    hook = model.proj_out.register_forward_pre_hook(lambda m, args: last.append(args[0]))
    out = model(input_features=sound, decoder_input_ids=torch.tensor([row]), use_cache=False)
    hook.remove()
    return out.logits[0], last[0][0]


def main():
    args, wanted, config, model = asked(__doc__, AutoModelForSpeechSeq2Seq, random_weights)
    begin = config.decoder_start_token_id
    words = lambda n: [t for t in torch.randint(3, config.vocab_size, (4 * n,)).tolist() if t != begin][:n]
    rows = [[begin] + words(n) for n in LENGTHS]
    sounds = [torch.randn(1, config.num_mel_bins, 2 * config.max_source_positions) for _ in rows]
    made = [run(model, row, sound) for row, sound in zip(rows, sounds)]
    logits, last, labels = [m[0] for m in made], [m[1] for m in made], labels_of(rows)
    loss, count = loss_of(logits, labels)
    loss.backward()
    said = {"loss": loss.item(), "n_label_tokens": count}
    numbers = {"name": wanted["model_type"], "seed": args.seed, "architecture": type(model).__name__, "transformers": transformers.__version__,
               "packed_lens": [len(row) for row in rows], "cases": {"right": said, "left": said, "packed": said}}
    grads = on_disk(model, {n: torch.full_like(p, float("nan")) if p.grad is None else p.grad for n, p in model.named_parameters()})
    norms = {n: None if g.isnan().any() else g.norm().item() for n, g in sorted(grads.items())}
    numbers["grad"] = {"right": {"includes_router_aux_loss": False, "loss": loss.item(), "norms": norms}}
    tensors = {f"grad/right/{n}": grads[n].float().contiguous() for n, norm in norms.items() if norm is not None and grads[n].numel() <= LARGEST_GRADIENT}
    with torch.no_grad():
        heard = torch.cat([model.model.encoder(sound).last_hidden_state[0] for sound in sounds])
    ids, detached, width = [torch.tensor(row) for row in rows], lambda list_: [x.detach() for x in list_], max(map(len, rows))
    for which in ("right", "left"):
        left = which == "left"
        mask = place([torch.ones_like(i) for i in ids], width, left)
        tensors.update({f"{which}/input_features": torch.cat(sounds).clone(), f"{which}/input_ids": place(ids, width, left),
                        f"{which}/attention_mask": mask, f"{which}/labels": torch.where(mask > 0, place(labels, width, left), -100),
                        f"{which}/position_ids": place([torch.arange(len(i)) for i in ids], width, left),
                        f"{which}/logits": place(detached(logits), width, left),
                        f"{which}/last_hidden_state": place(detached(last), width, left), f"audio/{which}/audio_embeds": heard.clone()})
    tensors["packed/input_ids"], tensors["packed/labels"] = torch.cat(ids)[None], torch.cat(labels)[None]
    tensors["packed/position_ids"] = torch.cat([torch.arange(len(i)) for i in ids])[None].contiguous()
    tensors["packed/logits"], tensors["packed/last_hidden_state"] = torch.cat(detached(logits))[None], torch.cat(detached(last))[None]
    with torch.no_grad():
        answers, margin = [list(row) for row in rows], float("inf")
        for _ in range(NEW_TOKENS):
            step = torch.stack([run(model, row, sound)[0][-1] for row, sound in zip(answers, sounds)])
            step[:, begin] = float("-inf")  # it would be a sound's
            best = step.topk(2, -1)
            margin = min(margin, (best.values[:, 0] - best.values[:, 1]).min().item())
            for row, new in zip(answers, best.indices[:, 0].tolist()):
                row.append(new)
    new = [row[-NEW_TOKENS:] for row in answers]
    tensors["gen/new_ids"] = torch.tensor(new)
    numbers["gen"] = {"min_top2_margin": margin, "distinct_tokens_min": min(len(set(row)) for row in new), "prompt_case": "left"}
    spread = tensors["right/logits"].std().item()
    print(f"{sum(p.numel() for p in model.parameters())} parameters, logits of spread {spread:.3g}, nearest tie {margin:.3g}, "
          f"{numbers['gen']['distinct_tokens_min']} different tokens of {NEW_TOKENS}")
    if margin < 2e-3 or numbers["gen"]["distinct_tokens_min"] < 3 or not 0.05 < spread < 30:
        raise SystemExit("Not kept: a tie is too near, the answers are one word, or the logits are too small or too large; another --seed")
    shutil.rmtree(args.folder, ignore_errors=True)
    checkpoint = os.path.join(args.folder, "checkpoint")
    model.to(torch.bfloat16).save_pretrained(checkpoint, safe_serialization=True)
    if os.path.exists(os.path.join(checkpoint, "generation_config.json")):
        os.remove(os.path.join(checkpoint, "generation_config.json"))
    save_file(tensors, os.path.join(args.folder, "golden.safetensors"))
    with open(os.path.join(args.folder, "golden.json"), "w", encoding="utf-8") as file:
        json.dump(numbers, file, indent=1, sort_keys=True)


main()
