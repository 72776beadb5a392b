#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""config.json files with keys left out at random: what we take for a missing key is what transformers takes for it. The checkpoint
is ours; log-probabilities of the same tokens are compared, f32 on the processor.

Usage: config_defaults.py APUS GOLDEN FOLDER [FAMILY...]
"""
import glob
import json
import os
import random
import shutil
import sys

import checkpoints
import tiny

TRIES = 4
# Sizes: their defaults are those of models of billions. Layers' kinds follow from them.
SIZES = {
    "architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "max_position_embeddings", "layer_types", "num_local_experts", "num_experts",
    "n_routed_experts", "moe_intermediate_size", "shared_expert_intermediate_size", "q_lora_rank", "kv_lora_rank",
    "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_shared_experts", "num_experts_per_tok", "n_group", "topk_group",
    "first_k_dense_replace", "linear_key_head_dim", "linear_value_head_dim", "linear_num_key_heads", "linear_num_value_heads",
    "mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_ssm", "mamba_expand", "mamba_chunk_size",
    "attn_layer_indices", "rope_scaling", "rope_parameters", "block_size", "moe_num_experts", "moe_k", "moe_layer_start_index",
    "moe_layer_end_index", "moe_num_shared_experts", "moe_topk", "num_shared_expert", "query_pre_attn_scalar",
    "pad_token_id", "bos_token_id", "eos_token_id", "qk_head_dim", "original_max_position_embeddings", "num_layers", "ffn_hidden_size",
    "expert_ffn_hidden_size", "zero_expert_num", "kv_channels", "lru_width", "hc_mult", "indexer_types", "d_model", "n_heads", "n_layers",
    "max_seq_len", "attn_config", "ffn_config", "o_groups",
}


def reduced(config, seed):
    """The config without some keys, and their names."""
    chance = random.Random(seed)
    gone = sorted(k for k in config if k not in SIZES and chance.random() < 0.5)
    return {k: v for k, v in config.items() if k not in gone}, gone


def main():
    apus, golden, folder = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    import torch
    from transformers import AutoModelForCausalLM
    good, seen = True, 0
    for source in sorted(glob.glob(os.path.join(golden, "models/*/checkpoint"))):
        family = os.path.basename(os.path.dirname(source))
        with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        if (sys.argv[4:] and family not in sys.argv[4:]) or \
                not str((config.get("architectures") or [""])[0]).endswith("ForCausalLM"):
            continue
        for seed in range(TRIES):
            some, gone = reduced({**config, "vocab_size": 2048, "torch_dtype": "float32"}, f"{family} {seed}")
            ours = os.path.join(folder, f"{family}.{seed}")
            shutil.rmtree(ours, ignore_errors=True)
            changed = os.path.join(folder, "config.json")
            with open(changed, "w", encoding="utf-8") as file:
                json.dump(some, file)
            try:
                tiny.run(apus, "init", "--config", changed, "--output_dir", ours, "--tokenizer",
                         os.path.join(golden, "text/tokenizers/tiny-qwen3"))
                values = checkpoints.our_values(checkpoints.score(apus, folder, ours))
            except SystemExit as reason:
                print(f"{family}: not ours without {gone}: {str(reason).splitlines()[-1][:200]}", flush=True)
                continue
            try:
                model = AutoModelForCausalLM.from_pretrained(ours, dtype=torch.float32, attn_implementation="eager")
            except Exception as reason:
                print(f"{family}: transformers does not load it without {gone}: {type(reason).__name__}: {str(reason)[:160]}",
                      flush=True)
                continue
            seen += 1
            same = tiny.compare(f"{family} {seed}", values, checkpoints.their_values(model), checkpoints.TOLERANCE)
            if not same:
                print(f"   without {gone}", flush=True)
            good &= same
            shutil.rmtree(ours, ignore_errors=True)
    print(f"{seen} checkpoints compared")
    return 0 if good and seen else 1


if __name__ == "__main__":
    sys.exit(main())
