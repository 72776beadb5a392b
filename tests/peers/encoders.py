#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Encoders as transformers runs and trains them: vectors, labels of texts and of pairs, the losses of training all weights and of
training an adapter that PEFT has made, texts that are cut. Tiny models of random weights, f32, without dropout, on the processor.

Usage: encoders.py APUS GOLDEN FOLDER [FAMILY...]
"""
import copy
import json
import os
import random
import shutil
import sys

import torch
import transformers
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoModel, AutoModelForSequenceClassification, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import tiny

SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48, "hidden_dropout_prob": 0.0,
         "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 66}
FAMILIES = {
    "bert": SMALL,
    "roberta": {**SMALL, "type_vocab_size": 1},
    "xlm-roberta": {**SMALL, "type_vocab_size": 1},
    "mpnet": SMALL,
    "nomic_bert": SMALL,
    "distilbert": {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0},
    "modernbert": {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 48, "local_attention": 8,
                   "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3},
}
TELLS_APART = {"bert", "nomic_bert"}
WORDS = "the cat dog sits runs on a mat red blue house very fast slow and or not is was big small".split()
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
STEPS, BATCH, RATE, LABELS = 4, 3, 1e-3, 3


def make_tokenizer(folder):
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    vocab = MARKS + letters + ["##" + c for c in letters] + WORDS + ["##s", "##ing", ".", "!", "?"]
    ids = {word: i for i, word in enumerate(dict.fromkeys(vocab))}
    own = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    own.normalizer, own.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    own.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])])
    own.decoder = decoders.WordPiece()
    fast = PreTrainedTokenizerFast(tokenizer_object=own, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
                                   mask_token="[MASK]")
    fast.save_pretrained(folder)
    return fast, len(ids)


def make_model(family, folder):
    torch.manual_seed(11)
    tokenizer, size = make_tokenizer(folder)
    config = CONFIG_MAPPING[family](vocab_size=size, num_labels=LABELS, pad_token_id=0 if family != "mpnet" else 1, **FAMILIES[family])
    model = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.copy_(torch.randn_like(p) * 0.7 / p.shape[-1] ** 0.5)
    model.save_pretrained(folder)
    return model, tokenizer


def sentences(count, seed):
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) for _ in range(draw.randint(2, 9))) + draw.choice(".!?") for _ in range(count)]


def encoded(tokenizer, family, first, second=None, limit=None):
    return tokenizer(first, second, return_tensors="pt", truncation=limit is not None, max_length=limit,
                     return_token_type_ids=family in TELLS_APART)


def write(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def talk(first, second=None, **more):
    messages = [{"role": "user", "content": first}]
    if second:
        messages.append({"role": "assistant", "content": second})
    return {"messages": messages, **more}


def farthest(ours, theirs):
    return max((torch.tensor(a) - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))


def infer(apus, folder, model, rows, *flags):
    data, out = os.path.join(folder, "rows.jsonl"), os.path.join(folder, "out.jsonl")
    if os.path.exists(out):
        os.remove(out)
    write(data, rows)
    tiny.run(apus, "infer", "--model", model, "--val_dataset", data, "--result_path", out, "--torch_dtype", "float32", *flags)
    return read(out)


def vectors(apus, folder, family, dir_, tokenizer):
    base = AutoModel.from_pretrained(dir_, attn_implementation="eager").eval()
    texts, worst = sentences(6, 1), 0
    ways = {"cls": lambda h: h[0], "last": lambda h: h[-1], "mean": lambda h: h.mean(0), "max": lambda h: h.amax(0)}
    for way, of in ways.items():
        with torch.no_grad():
            wanted = [torch.nn.functional.normalize(of(base(**encoded(tokenizer, family, t)).last_hidden_state[0]), dim=0) for t in texts]
        got = infer(apus, folder, dir_, [talk(t) for t in texts], "--task_type", "embedding", "--pooling", way)
        worst = max(worst, farthest([row["response"] for row in got], wanted))
    return worst


def labels(apus, folder, family, dir_, model, tokenizer):
    first, second, worst = sentences(6, 2), sentences(6, 3), 0
    for others, flags, limit in ((None, (), None), (second, (), None), (second, ("--max_length", "11", "--truncation_strategy", "right"), 11)):
        pairs = list(zip(first, others or [None] * len(first)))
        with torch.no_grad():
            wanted = [model(**encoded(tokenizer, family, a, b, limit)).logits[0] for a, b in pairs]
        got = infer(apus, folder, dir_, [talk(a, b) for a, b in pairs], *flags)
        worst = max(worst, farthest([row["logits"] for row in got], wanted))
    return worst


def trained(model, tokenizer, family, rows):
    """Losses of AdamW on `rows`, BATCH at a time, as Apus counts them: the mean over a batch before its step."""
    model = model.eval()  # nothing is dropped
    parameters = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in parameters if p.dim() > 1]  # norms and biases do not decay
    rest = [p for p in parameters if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=RATE, betas=(0.9, 0.95),
                                  eps=1e-8)
    losses = []
    for step in range(STEPS):
        batch = rows[step * BATCH:(step + 1) * BATCH]
        logits = torch.cat([model(**encoded(tokenizer, family, a, b)).logits for a, b, _ in batch])
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([label for _, _, label in batch]))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    return losses


def apus_losses(apus, folder, dir_, rows, *flags):
    data, out = os.path.join(folder, "train.jsonl"), os.path.join(folder, "run")
    shutil.rmtree(out, ignore_errors=True)
    write(data, [talk(a, b, label=label) for a, b, label in rows])
    tiny.run(apus, "sft", "--task_type", "seq_cls", "--model", dir_, "--dataset", data, "--output_dir", out, "--torch_dtype", "float32",
             "--per_device_train_batch_size", str(BATCH), "--gradient_accumulation_steps", "1", "--max_steps", str(STEPS),
             "--learning_rate", str(RATE), "--lr_scheduler_type", "constant", "--warmup_ratio", "0", "--weight_decay", "0.1",
             "--adam_beta1", "0.9", "--adam_beta2", "0.95", "--max_grad_norm", "1", "--dataset_shuffle", "false",
             "--train_dataloader_shuffle", "false", "--logging_steps", "1", "--split_dataset_ratio", "0", "--add_version", "false",
             "--save_steps", "1000", *flags)
    return [row["loss"] for row in read(os.path.join(out, "logging.jsonl")) if "loss" in row][:STEPS]


def training(apus, folder, family, dir_, model, tokenizer):
    draw = random.Random(4)
    rows = [(a, b if i % 2 else None, draw.randrange(LABELS))
            for i, (a, b) in enumerate(zip(sentences(STEPS * BATCH, 5), sentences(STEPS * BATCH, 6)))]
    full = farthest([apus_losses(apus, os.path.join(folder, "full"), dir_, rows, "--tuner_type", "full")],
                    [torch.tensor(trained(copy.deepcopy(model), tokenizer, family, rows))])
    torch.manual_seed(3)
    targets = {"bert": ["query", "value"], "roberta": ["query", "value"], "xlm-roberta": ["query", "value"], "mpnet": ["attn.q", "attn.v"],
               "distilbert": ["q_lin", "v_lin"], "modernbert": ["Wqkv"]}
    if family not in targets:  # transformers splits its matrices apart in memory
        return full, None
    peft = get_peft_model(copy.deepcopy(model), LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=targets[family], task_type="SEQ_CLS"))
    adapter = os.path.join(folder, "adapter")
    peft.save_pretrained(adapter)
    ours = apus_losses(apus, os.path.join(folder, "lora"), dir_, rows, "--tuner_type", "lora", "--adapters", adapter, "--lora_dropout", "0")
    return full, farthest([ours], [torch.tensor(trained(peft, tokenizer, family, rows))])


def main():
    apus, _, folder, *wanted = sys.argv[1:]
    print(f"transformers {transformers.__version__}; the largest difference of each")
    bad = []
    for family in wanted or FAMILIES:
        own = os.path.join(folder, family)
        dir_ = os.path.join(own, "model")
        for each in ("model", "full", "lora"):
            os.makedirs(os.path.join(own, each), exist_ok=True)
        model, tokenizer = make_model(family, dir_)
        found = {"vectors": vectors(apus, own, family, dir_, tokenizer), "labels": labels(apus, own, family, dir_, model, tokenizer)}
        found["losses"], found["LoRA losses"] = training(apus, own, family, dir_, model, tokenizer)
        print(f"{family:12}", ", ".join(f"{name} {value:.2g}" for name, value in found.items() if value is not None), flush=True)
        bad += [f"{family}: {name} {value:.3g}" for name, value in found.items() if value is not None and not value < 2e-5]
    if bad:
        sys.exit("too far: " + "; ".join(bad))


main()
