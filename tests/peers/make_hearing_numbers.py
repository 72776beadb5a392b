# SPDX-License-Identifier: Apache-2.0
"""The numbers of a family that hears and does not see: a tiny checkpoint of random weights and what transformers computes with it.

  make_hearing_numbers.py CONFIG.json tests/data/models/NAME [--seed N]

As make_seeing_numbers.py has it for families that see: every row has sounds, whose spectrograms are random, also behind their ends."""
import json
import os
import shutil

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForMultimodalLM

from make_numbers import asked, loss_of, on_disk, place
from make_seeing_numbers import LARGEST_GRADIENT, NEW_TOKENS, ROWS, labels_of, together
from random_weights import random_weights

FRAMES = (21, 32, 9)  # of the sounds that are heard; ten times as many where whole seconds are heard together


def whole_pieces(config):
    """Voxtral hears pieces of one length, all of each."""
    return config.model_type == "voxtral"


def tokens_of(config, frames):
    if whole_pieces(config):
        return frames // 2 // (config.audio_config.intermediate_size // config.audio_config.hidden_size)
    if hasattr(config.audio_config, "n_window"):
        chunk = 2 * config.audio_config.n_window
        return frames // chunk * ((chunk + 7) // 8) + (frames % chunk + 7) // 8
    return ((frames - 1) // 2 + 1 - 2) // 2 + 1


def sound_of(config, number):
    audio = config.audio_config
    if hasattr(audio, "n_window"):  # in whole chunks, with zeros behind its end
        chunk, frames = 2 * audio.n_window, 10 * FRAMES[number] + 1
        mask = (torch.arange(-(-frames // chunk) * chunk) < frames).long()
        return {"input_features": torch.randn(1, audio.num_mel_bins, len(mask)) * mask, "feature_attention_mask": mask[None]}
    whole = 2 * audio.max_source_positions
    if whole_pieces(config):  # two of them the second
        return {"input_features": torch.randn(1 + (number == 1), audio.num_mel_bins, whole)}
    mask = (torch.arange(whole) < FRAMES[number]).long()
    return {"input_features": torch.randn(1, audio.num_mel_bins, whole), "feature_attention_mask": mask[None]}


def as_arguments(model, given):
    """Qwen3-ASR's name of the mask; without one all is heard."""
    if model.config.model_type != "qwen3_asr" or not given:
        return given
    return {"input_features": given["input_features"], "input_features_mask": given["feature_attention_mask"]}


def rows_of(model, sound):
    """What stands for a sound: that of its tokens, as the model puts it in."""
    inner, made = model.model, []
    features = sound["input_features"]
    frames = features.shape[0] * features.shape[2] if whole_pieces(model.config) else int(sound["feature_attention_mask"].sum())
    count = tokens_of(model.config, frames)
    token = model.config.audio_token_id
    hook = inner.multi_modal_projector.register_forward_hook(lambda m, args, out: made.append(out if out.dim() == 2 else out[0, :count]))
    inner(input_ids=torch.tensor([[3] + [token] * count]), attention_mask=torch.ones(1, count + 1, dtype=torch.long), use_cache=False, **as_arguments(model, sound))
    hook.remove()
    return made[0]


def run(model, row, sounds):
    last = []
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda m, args: last.append(args[0]))
    out = model(input_ids=torch.tensor([row]), attention_mask=torch.ones(1, len(row), dtype=torch.long), use_cache=False, **as_arguments(model, together(sounds)))
    hook.remove()
    return out.logits[0], last[0][0]


def main():
    args, wanted, config, model = asked(__doc__, AutoModelForMultimodalLM, random_weights)
    token, vocab = config.audio_token_id, config.text_config.vocab_size
    words = lambda n: [t for t in torch.randint(3, vocab, (4 * n,)).tolist() if t != token][:n]
    rows, sounds = [], []
    for lengths in ROWS:
        row, own = words(lengths[0]), []
        for length in lengths[1:]:
            own.append(sound_of(config, sum(map(len, sounds)) + len(own)))
            with torch.no_grad():
                row += [token] * len(rows_of(model, own[-1])) + words(length)
        rows.append(row)
        sounds.append(own)
    text, all_sounds = words(10), [s for own in sounds for s in own]
    numbers = {"name": wanted["model_type"], "seed": args.seed, "architecture": type(model).__name__, "transformers": transformers.__version__,
               "packed_lens": [len(row) for row in rows]}
    made = [run(model, row, own) for row, own in zip(rows, sounds)]
    logits, last, labels = [m[0] for m in made], [m[1] for m in made], [labels_of(row, token) for row in rows]
    loss, count = loss_of(logits, labels)
    loss.backward()
    said = {"loss": loss.item(), "n_label_tokens": count}
    grads = on_disk(model, {n: torch.full_like(p, float("nan")) if p.grad is None else p.grad for n, p in model.named_parameters()})
    norms = {n: None if g.isnan().any() else g.norm().item() for n, g in sorted(grads.items())}
    numbers["grad"] = {"right": {"includes_router_aux_loss": False, "loss": loss.item(), "norms": norms}}
    tensors = {f"grad/right/{n}": grads[n].float().contiguous() for n, norm in norms.items() if norm is not None and grads[n].numel() <= LARGEST_GRADIENT}
    with torch.no_grad():
        heard = torch.cat([rows_of(model, s) for s in all_sounds])
    ids, detached, width = [torch.tensor(row) for row in rows], lambda list_: [x.detach() for x in list_], max(map(len, rows))
    for which in ("right", "left"):
        left = which == "left"
        mask = place([torch.ones_like(i) for i in ids], width, left)
        tensors.update({f"{which}/{name}": t.clone().contiguous() for name, t in together(all_sounds).items()})
        tensors.update({f"{which}/input_ids": place(ids, width, left), f"{which}/attention_mask": mask,
                        f"{which}/labels": torch.where(mask > 0, place(labels, width, left), -100),
                        f"{which}/position_ids": place([torch.arange(len(i)) for i in ids], width, left),
                        f"{which}/logits": place(detached(logits), width, left),
                        f"{which}/last_hidden_state": place(detached(last), width, left), f"audio/{which}/audio_embeds": heard.clone()})
    tensors["packed/input_ids"], tensors["packed/labels"] = torch.cat(ids)[None], torch.cat(labels)[None]
    tensors["packed/position_ids"] = torch.cat([torch.arange(len(i)) for i in ids])[None].contiguous()
    tensors["packed/logits"], tensors["packed/last_hidden_state"] = torch.cat(detached(logits))[None], torch.cat(detached(last))[None]
    with torch.no_grad():
        out, hidden = run(model, text, [])
        text_label = labels_of(text, token)
        text_loss, text_count = loss_of([out], [text_label])
        for name, value in {"input_ids": torch.tensor(text), "attention_mask": torch.ones(len(text), dtype=torch.long), "labels": text_label,
                            "position_ids": torch.arange(len(text)), "logits": out, "last_hidden_state": hidden}.items():
            tensors[f"text/{name}"] = value[None].contiguous()
        numbers["cases"] = {"right": said, "left": said, "packed": said, "text": {"loss": text_loss.item(), "n_label_tokens": text_count}}
        answers, margin = [list(row) for row in rows], float("inf")
        for _ in range(NEW_TOKENS):
            step = torch.stack([run(model, row, own)[0][-1] for row, own in zip(answers, sounds)])
            step[:, token] = float("-inf")  # it would be a sound's
            best = step.topk(2, -1)
            margin = min(margin, (best.values[:, 0] - best.values[:, 1]).min().item())
            for row, new in zip(answers, best.indices[:, 0].tolist()):
                row.append(new)
    new = [row[-NEW_TOKENS:] for row in answers]
    tensors["gen/new_ids"] = torch.tensor(new)
    numbers["gen"] = {"min_top2_margin": margin, "distinct_tokens_min": min(len(set(row)) for row in new), "prompt_case": "left"}
    spread = tensors["right/logits"].std().item()
    print(f"{type(model).__name__}: {sum(p.numel() for p in model.parameters())} parameters, logits of spread {spread:.3g}, "
          f"nearest tie {margin:.3g}, {numbers['gen']['distinct_tokens_min']} different tokens of {NEW_TOKENS}")
    if margin < 2e-3 or numbers["gen"]["distinct_tokens_min"] < 3 or not 0.05 < spread < 30 or not torch.isfinite(tensors["right/logits"]).all():
        raise SystemExit("Not kept: a tie is too near, the answers are one word, or the logits are too small or too large; another --seed, or other sizes")
    shutil.rmtree(args.folder, ignore_errors=True)
    os.makedirs(args.folder)
    checkpoint = os.path.join(args.folder, "checkpoint")
    model.to(torch.bfloat16).save_pretrained(checkpoint, safe_serialization=True)
    if os.path.exists(os.path.join(checkpoint, "generation_config.json")):
        os.remove(os.path.join(checkpoint, "generation_config.json"))
    save_file(tensors, os.path.join(args.folder, "golden.safetensors"))
    with open(os.path.join(args.folder, "golden.json"), "w", encoding="utf-8") as file:
        json.dump(numbers, file, indent=1, sort_keys=True)


main()
