#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""20 steps of TRL's trainers against `apus rlhf` on the same token ids, f32 on the processor, all weights trained.

Usage: trl_train.py APUS GOLDEN FOLDER [NAME...]
"""
import os
import shutil
import sys
import warnings

import rows as all_rows
import tiny

warnings.filterwarnings("ignore")
STEPS, BATCH = 20, 4
SHARED = dict(max_steps=STEPS, per_device_train_batch_size=BATCH, gradient_accumulation_steps=1, learning_rate=1e-3,
              lr_scheduler_type="constant", logging_steps=1, report_to="none", save_strategy="no", use_cpu=True, bf16=False,
              gradient_checkpointing=False, adam_beta2=0.95, weight_decay=0.1, max_grad_norm=1.0, disable_tqdm=True,
              dataloader_num_workers=0, optim="adamw_torch")
OURS = ["--tuner_type", "full", "--torch_dtype", "float32", "--max_steps", STEPS, "--per_device_train_batch_size", BATCH,
        "--gradient_accumulation_steps", 1, "--learning_rate", "1e-3", "--lr_scheduler_type", "constant", "--logging_steps", 1,
        "--report_to", "none", "--save_strategy", "no", "--add_version", "false", "--dataset_shuffle", "false",
        "--train_dataloader_shuffle", "false"]


def in_order(trainer_class):
    """The rows in their order: TRL's trainers have no switch for it."""
    from torch.utils.data import SequentialSampler

    class InOrder(trainer_class):
        def _get_train_sampler(self, dataset=None):
            return SequentialSampler(self.train_dataset)
    return InOrder


def pairs(short=False):
    m = all_rows.Maker(11)
    return [{"prompt": "a" if short else m.text(3, 8), "chosen": " " + m.text(2, 12), "rejected": " " + m.text(2, 12)} for _ in range(STEPS * BATCH)]


def judged():
    return [{"prompt": row["prompt"], "completion": row["chosen"], "label": i % 3 != 1} for i, row in enumerate(pairs())]


def id_pair(chosen, rejected, prompt):
    """A row of ids as docs/alignment.md has it."""
    row = {}
    for name, ids in (("chosen", chosen), ("rejected", rejected)):
        row[name + "_input_ids"] = ids
        row[name + "_labels"] = [-100] * prompt + ids[prompt:]
    return row


def of_dpo(rows):
    return [id_pair(r["prompt_ids"] + r["chosen_ids"], r["prompt_ids"] + r["rejected_ids"], len(r["prompt_ids"])) for r in rows]


def of_labels(rows):
    """CPO and ORPO: labels are there."""
    return [{f"{side}_{key}": r[f"{side}_{key}"] for side in ("chosen", "rejected") for key in ("input_ids", "labels")} for r in rows]


def of_kto(rows):
    return [{"input_ids": r["completion_input_ids"], "labels": r["completion_labels"], "label": r["label"]} for r in rows]


def of_reward(rows):
    return [id_pair(r["chosen_ids"], r["rejected_ids"], 0) for r in rows]


def cases():
    from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer
    from trl.experimental.cpo import CPOConfig, CPOTrainer
    from trl.experimental.kto import KTOConfig, KTOTrainer
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer
    return {
        "dpo": (DPOTrainer, DPOConfig, dict(beta=0.1, precompute_ref_log_probs=False), of_dpo, ["--rlhf_type", "dpo", "--beta", 0.1]),
        "dpo ipo": (DPOTrainer, DPOConfig, dict(beta=0.1, loss_type=["ipo"]), of_dpo, ["--rlhf_type", "dpo", "--beta", 0.1, "--loss_type", "ipo"]),
        "cpo": (CPOTrainer, CPOConfig, dict(beta=0.1, cpo_alpha=1.0, loss_type="sigmoid"), of_labels,
                ["--rlhf_type", "cpo", "--beta", 0.1, "--cpo_alpha", 1]),
        "simpo": (CPOTrainer, CPOConfig, dict(beta=2.0, cpo_alpha=0.0, simpo_gamma=1.0, loss_type="simpo"), of_labels,
                  ["--rlhf_type", "simpo", "--beta", 2, "--cpo_alpha", 0, "--simpo_gamma", 1]),
        "kto": (KTOTrainer, KTOConfig, dict(beta=0.1), of_kto, ["--rlhf_type", "kto", "--beta", 0.1]),
        "orpo": (ORPOTrainer, ORPOConfig, dict(beta=0.1), of_labels, ["--rlhf_type", "orpo", "--beta", 0.1]),
        "rm": (RewardTrainer, RewardConfig, dict(), of_reward, ["--rlhf_type", "rm"]),
    }


def main():
    apus, golden, folder = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    os.environ.update(CUDA_VISIBLE_DEVICES="", TRL_EXPERIMENTAL_SILENCE="1")
    import json

    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

    tokenizer_folder = os.path.join(golden, "text/tokenizers/tiny-qwen2.5")
    model = tiny.make(apus, os.path.join(folder, "model"), "qwen2", tokenizer_folder, pad_token_id=2022)
    tokenizer = AutoTokenizer.from_pretrained(model)
    good = True
    for name, (trainer_class, config_class, options, rows_of, flags) in cases().items():
        if sys.argv[4:] and name not in sys.argv[4:]:
            continue
        start = model
        if name == "rm":  # both begin with one head
            start = os.path.join(folder, "reward")
            loaded = AutoModelForSequenceClassification.from_pretrained(model, num_labels=1, dtype="float32")
            loaded.config.pad_token_id = tokenizer.pad_token_id
            loaded.save_pretrained(start)
            tokenizer.save_pretrained(start)
        else:
            loaded = AutoModelForCausalLM.from_pretrained(model, dtype="float32")
        config = config_class(output_dir=os.path.join(folder, "trl"), **SHARED, **options)
        if "disable_dropout" in config.__dict__:
            config.disable_dropout = True
        # TRL's orpo learns the questions too; with questions of one token, which nothing predicts, there is no difference.
        rows = judged() if name == "kto" else pairs(short=name == "orpo")
        trainer = in_order(trainer_class)(model=loaded, args=config, train_dataset=Dataset.from_list(rows),
                                          processing_class=tokenizer)
        data = os.path.join(folder, "rows.jsonl")
        with open(data, "w", encoding="utf-8") as file:
            for row in rows_of(trainer.train_dataset):
                file.write(json.dumps(row) + "\n")
        trainer.train()
        theirs = [float(line["loss"]) for line in trainer.state.log_history if "loss" in line]
        out = os.path.join(folder, "ours")
        shutil.rmtree(out, ignore_errors=True)
        tiny.run(apus, "rlhf", *flags, "--model", start, "--dataset", data, "--output_dir", out, *OURS)
        good &= tiny.compare(name, tiny.log_of(out), theirs, 2e-4)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
